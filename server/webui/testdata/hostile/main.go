// Plugin hostile writes what would do harm in a page that did not escape it,
// and then a line and its progress again and again, until it is asked to stop,
// which is a success. It can ask its user first. Built for .ci/page.sh.
package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
)

type args struct {
	Steps int       `json:"steps,omitempty" desc:"Lines to write, five in a second"`
	Ask   bool      `json:"ask,omitempty" desc:"Ask for a name first"`
	Greet *greeting `json:"greet,omitempty" desc:"Whom to greet at the end"`
}

type greeting struct {
	Name  string `json:"name" desc:"A <b>name</b>"`
	Times int    `json:"times,omitempty" desc:"How often"`
}

type result struct {
	Text string `json:"text"`
}

const attack = `</span></pre></main><script>document.title="owned";alert(1)</script><img src="http://127.0.0.1:9/x" onerror="alert(2)">` +
	`<iframe src="http://127.0.0.1:9/"></iframe><style>*{display:none}</style><base href="http://127.0.0.1:9/">` +
	"\x1b[31mred\x1b[0m \u202egpj.exe\u202c\n"

func write(c *guest.Call, in args) (result, error) {
	if in.Ask {
		const form = `{"type":"object","properties":{"name":{"type":"string","minLength":2}},"required":["name"]}`
		answers, err := c.Ask(map[string]guest.Question{"name": guest.Form(attack, form)})
		if err != nil {
			return result{}, err
		}
		return result{string(answers["name"].Content)}, nil
	}
	_, _ = fmt.Fprint(c.Output(), attack)
	for i := range in.Steps {
		_, _ = fmt.Fprintf(c.Output(), "step %d\n", i+1)
		_ = c.Progress(float64(i+1), float64(i+500), attack) // it moves, and is not at its end for as long as a browser may take
		if c.Sleep(200*time.Millisecond) != nil {
			break
		}
	}
	if in.Greet != nil {
		return result{strings.Repeat("Hello "+in.Greet.Name+". ", max(1, in.Greet.Times))}, nil
	}
	return result{attack}, nil
}

var plugin = guest.Plugin{
	Name: "hostile", Version: "1.0.0", Description: attack[:150], Needs: abi.Needs{Clock: true, Ask: true},
	Tools: []guest.Tool{{
		Name: "hostile", Title: "<b onclick=alert(3)>Hostile</b>", Description: attack[:150],
		Handler: guest.Handle(write), Hints: guest.Hints{SupportsBackground: true, Readonly: true},
	}},
}

func init() { guest.Serve(&plugin) }

func main() {}
