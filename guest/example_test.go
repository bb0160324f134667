package guest_test

import (
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/guesttest"
)

// A tool is a typed function: its schemas come from the types and their tags.
func ExampleHandle() {
	type args struct {
		Text string `json:"text" desc:"Text to count" min:"1"`
	}
	count := func(c *guest.Call, in args) (int, error) {
		words := strings.Fields(in.Text)
		if len(words) == 0 {
			return 0, guest.Errorf("no words in %q", in.Text)
		}
		return len(words), nil
	}
	plugin := guest.Plugin{
		Name: "words", Version: "1.0.0", Description: "Counts words.",
		Tools: []guest.Tool{{
			Name: "words", Description: "Counts words.", Handler: guest.Handle(count),
			Hints: guest.Hints{Readonly: true, Idempotent: true},
		}},
	}

	m, err := plugin.Manifest()
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println(string(m.Tools[0].InputSchema))
	fmt.Println(guesttest.Call(&plugin, "words", args{"a b c"}))
	fmt.Println(guesttest.Call(&plugin, "words", args{" "}).Error)
	// Output:
	// {"type":"object","properties":{"text":{"type":"string","description":"Text to count","minLength":1}},"required":["text"],"additionalProperties":false}
	// {"kind":"success","value":3,"usage":{"fuel":0,"cpu_ns":0,"wall_ns":0,"wait_ns":0,"memory_peak":0,"output_bytes":0}}
	// no words in " "
}
