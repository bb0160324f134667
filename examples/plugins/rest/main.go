// Plugin rest calls the operations of APIs that the operator has described with OpenAPI
// documents in a folder. The host adds the secret to the requests, and admits only
// those that the operator's rules allow.
package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/guest"
	_ "github.com/toolhost/toolhost/guest/web"
)

// folder is the path of the folder with the API descriptions.
type folder string

type operationsArgs struct {
	Operation string `json:"operation,omitempty" desc:"Describe this one in full, with its parameters and body" max:"200"`
	Search    string `json:"search,omitempty" desc:"List only operations with these words in their name, path or summary" max:"200"`
	Limit     int    `json:"limit,omitempty" desc:"List at most so many" min:"1" max:"200" default:"50"`
}

type operationList struct {
	Operations []operation `json:"operations"`
	More       int         `json:"more,omitempty" desc:"How many others there are"`
}

func (f folder) operations(_ *guest.Call, in operationsArgs) (operationList, error) {
	all, err := readAPIs(string(f))
	if err != nil {
		return operationList{}, err
	}
	if in.Operation != "" {
		o, err := find(all, in.Operation)
		if err != nil {
			return operationList{}, err
		}
		o.details()
		return operationList{Operations: []operation{*o}}, nil
	}

	all = slices.DeleteFunc(all, func(o operation) bool { return !o.matches(in.Search) })
	n := min(len(all), in.Limit)
	return operationList{all[:n:n], len(all) - n}, nil
}

// matches reports whether an operation contains each of the words.
func (o *operation) matches(words string) bool {
	text := strings.ToLower(o.Operation + " " + o.Method + " " + o.URL + " " + o.Summary)
	for word := range strings.FieldsSeq(strings.ToLower(words)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

func find(all []operation, name string) (*operation, error) {
	for i := range all {
		if all[i].Operation == name {
			return &all[i], nil
		}
	}
	return nil, fmt.Errorf("there is no operation %q: list them with rest_operations", name)
}

type getArgs struct {
	Operation  string                     `json:"operation" desc:"Its name, of those that rest_operations lists" max:"200"`
	Parameters map[string]json.RawMessage `json:"parameters,omitempty" desc:"By their names; a list for several values"`
	Limit      int                        `json:"limit,omitempty" desc:"Return at most so many characters" min:"100" max:"200000" default:"20000"`
}

type callArgs struct {
	getArgs
	Body json.RawMessage `json:"body,omitempty" desc:"Of the request"`
}

func (f folder) get(_ *guest.Call, in getArgs) (answer, error) {
	return f.use(callArgs{getArgs: in}, true)
}

func (f folder) call(_ *guest.Call, in callArgs) (answer, error) { return f.use(in, false) }

func (f folder) use(in callArgs, reading bool) (answer, error) {
	all, err := readAPIs(string(f))
	if err != nil {
		return answer{}, err
	}
	o, err := find(all, in.Operation)
	if err != nil {
		return answer{}, err
	}
	if reading && !o.readsOnly() {
		return answer{}, fmt.Errorf("%s is a %s: use rest_call", o.Operation, o.Method)
	}

	r, err := o.request(in.Parameters, in.Body)
	if err != nil {
		return answer{}, err
	}
	return o.send(r, in.Limit)
}

func newPlugin(f folder) *guest.Plugin {
	reads := guest.Hints{Readonly: true, Idempotent: true}
	limits := guest.Limits{MemoryBytes: 256 << 20}
	return &guest.Plugin{
		Name: "rest", Version: "1.0.0", Description: "Calls the operations of APIs that are described with OpenAPI.", License: "Apache-2.0",
		Needs: guest.Needs{Files: []guest.FileNeed{{Path: "/apis", Mode: "read"}}, Secrets: []string{"rest"}},
		Tools: []guest.Tool{
			{
				Name: "operations", Description: "Lists the operations that rest_get and rest_call can use, or describes one in full.",
				Handler: guest.Handle(f.operations), Hints: reads, Limits: limits,
			},
			{
				Name: "get", Description: "Calls an operation that only reads: one of the method GET or HEAD.",
				Handler: guest.Handle(f.get), Hints: reads, Limits: limits,
			},
			{
				Name: "call", Description: "Calls any operation, also one that changes something.",
				Handler: guest.Handle(f.call), Limits: limits,
			},
		},
	}
}

func init() { guest.Serve(newPlugin("/apis")) }

func main() {}
