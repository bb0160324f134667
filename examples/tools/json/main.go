// Plugin json queries JSON in the language of jq.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/toolhost/toolhost/examples/tools/internal/folder"
	"github.com/toolhost/toolhost/guest"
)

// maxOutput limits the total size of the values in an answer, in bytes of JSON,
// because a model has to read them.
const maxOutput = 100_000

type queryArgs struct {
	Query     string                     `json:"query" desc:"Program in the language of jq 1.8, such as .items[] | select(.n > 1) | .name" min:"1" max:"10000"`
	Input     json.RawMessage            `json:"input,omitempty" desc:"Value to query; or give text or file"`
	Text      string                     `json:"text,omitempty" desc:"JSON to query as a text: one value, or several one after the other, as in JSON Lines"`
	File      string                     `json:"file,omitempty" desc:"File in the granted folder with such a text"`
	Slurp     bool                       `json:"slurp,omitempty" desc:"Query one array of all values instead of each value"`
	Variables map[string]json.RawMessage `json:"variables,omitempty" desc:"Values of variables by name: with {\"n\": 1} the query can use $n"`
	Limit     int                        `json:"limit" desc:"Results to return at most" min:"1" max:"10000" default:"1000"`
}

type queryResult struct {
	Results   []json.RawMessage `json:"results"`
	Truncated bool              `json:"truncated" desc:"Whether the limit, or that of 100,000 bytes, has cut the results"`
}

type queries struct{ folder folder.Folder }

func (q queries) query(c *guest.Call, in queryArgs) (queryResult, error) {
	out := queryResult{Results: []json.RawMessage{}}
	inputs, err := q.inputs(in)
	if err != nil {
		return out, err
	}
	code, values, err := compile(in, inputs)
	if err != nil {
		return out, err
	}

	size := 0
	for {
		input, ok := inputs.Next()
		if !ok {
			return out, nil
		}
		if err, ok := input.(error); ok {
			return out, err
		}
		for results := code.Run(input, values...); ; {
			v, ok := results.Next()
			if !ok {
				break
			}
			if err, ok := v.(error); ok {
				if halt, ok := errors.AsType[*gojq.HaltError](err); ok && halt.Value() == nil {
					return out, nil
				}
				return out, fmt.Errorf("after %d results: %w", len(out.Results), err)
			}
			if err := c.Err(); err != nil {
				return out, err
			}

			data, err := gojq.Marshal(v)
			if err != nil {
				return out, err
			}
			if size += len(data); len(out.Results) == in.Limit || size > maxOutput {
				out.Truncated = true
				return out, nil
			}
			out.Results = append(out.Results, data)
		}
	}
}

// compile compiles a query. The program can read the inputs with input and inputs.
func compile(in queryArgs, inputs gojq.Iter) (*gojq.Code, []any, error) {
	query, err := gojq.Parse(in.Query)
	if err != nil {
		problem, ok := errors.AsType[*gojq.ParseError](err)
		if !ok {
			return nil, nil, err
		}
		return nil, nil, fmt.Errorf("the query is invalid at character %d: %w", problem.Offset, err)
	}
	var names []string
	var values []any
	for name, data := range in.Variables {
		var value any
		if err := json.Unmarshal(data, &value); err != nil {
			return nil, nil, fmt.Errorf("variable %s: %w", name, err)
		}
		names, values = append(names, "$"+strings.TrimPrefix(name, "$")), append(values, value)
	}
	code, err := gojq.Compile(query, gojq.WithVariables(names), gojq.WithInputIter(inputs))
	if err != nil {
		return nil, nil, fmt.Errorf("the query is invalid: %w", err)
	}
	return code, values, nil
}

// inputs returns the values on which a query is run.
func (q queries) inputs(in queryArgs) (gojq.Iter, error) {
	given := 0
	for _, is := range []bool{len(in.Input) > 0, in.Text != "", in.File != ""} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return nil, errors.New("give one of input, text and file")
	case given == 0:
		return gojq.NewIter[any](nil), nil
	case in.File != "":
		text, err := q.folder.Text(in.File)
		if err != nil {
			return nil, err
		}
		in.Text = text
	case in.Text == "":
		in.Text = string(in.Input)
	}

	values := &documents{decoder: json.NewDecoder(strings.NewReader(in.Text)), text: in.Text}
	values.decoder.UseNumber()
	if !in.Slurp {
		return values, nil
	}
	all := []any{}
	for {
		value, ok := values.Next()
		if !ok {
			return gojq.NewIter[any](all), nil
		}
		if err, ok := value.(error); ok {
			return nil, err
		}
		all = append(all, value)
	}
}

// documents iterates over the values in a text, which may contain more than one.
type documents struct {
	decoder *json.Decoder
	text    string
	ended   bool
}

// Next implements gojq.Iter.
func (d *documents) Next() (any, bool) {
	if d.ended {
		return nil, false
	}
	var value any
	err := d.decoder.Decode(&value)
	if err == nil {
		return value, true
	}

	d.ended = true
	if errors.Is(err, io.EOF) {
		return nil, false
	}
	at := d.decoder.InputOffset()
	if problem, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = problem.Offset
	}
	line := 1 + bytes.Count([]byte(d.text[:min(int(at), len(d.text))]), []byte("\n"))
	return fmt.Errorf("the text is not JSON: line %d: %w", line, err), true
}

func newPlugin(work folder.Folder) *guest.Plugin {
	closed := false
	return &guest.Plugin{
		Name: "json", Version: "1.0.0", Description: "Queries JSON.", License: "Apache-2.0",
		Tools: []guest.Tool{{
			Name: "query", Description: "Filters, reshapes and aggregates JSON by a query in the language of jq.",
			Handler: guest.Handle(queries{work}.query),
			Hints:   guest.Hints{Readonly: true, Idempotent: true, OpenWorld: &closed},
			Examples: []guest.Example{
				{
					Name: "select", Args: queryArgs{Query: ".[] | select(.stars > 2) | .name", Input: json.RawMessage(`[{"name":"a","stars":3},{"name":"b","stars":1}]`), Limit: 10},
					Result: json.RawMessage(`{"results":["a"],"truncated":false}`),
				},
				{
					Name: "JSON Lines", Args: queryArgs{Query: "map(.n) | add", Text: "{\"n\":1}\n{\"n\":2}\n", Slurp: true, Limit: 10},
					Result: json.RawMessage(`{"results":[3],"truncated":false}`),
				},
				{Name: "a mistake", Args: queryArgs{Query: ".a | (", Input: json.RawMessage(`{}`), Limit: 10}, Error: "the query is invalid at character"},
			},
		}},
	}
}

func init() { guest.Serve(newPlugin(folder.Path)) }

func main() {}
