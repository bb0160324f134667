// Plugin with the tools that the official conformance suite of MCP and its
// Tasks extension expect of a server, as far as a plugin can provide them. The
// suite's tool names begin with several prefixes. This source is built once for
// each prefix, with -ldflags "-X main.name=…", as a plugin of that name.
package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/guest"
)

var name = "test" // one of plugins

// What a PNG of one red pixel and a WAV of silence are.
const (
	picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	sound   = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)

func bytesOf(text string) []byte {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return data
}

var (
	image    = guest.ImageBlock(bytesOf(picture), "image/png")
	audio    = guest.AudioBlock(bytesOf(sound), "audio/wav")
	embedded = guest.ResourceBlock("test://embedded-resource", "text/plain", "This is an embedded resource content.")
)

type nothing struct{}

// say makes a tool that answers with a text.
func say(tool, text string) guest.Tool {
	return quick(tool, guest.Handle(func(*guest.Call, nothing) (string, error) { return text, nil }))
}

// show makes a tool that answers with blocks.
func show(tool string, blocks ...guest.Block) guest.Tool {
	return quick(tool, guest.Handle(func(c *guest.Call, _ nothing) (guest.None, error) {
		for _, b := range blocks {
			if err := c.Content(b); err != nil {
				return guest.None{}, err
			}
		}
		return guest.None{}, nil
	}))
}

func quick(tool string, h guest.Handler) guest.Tool {
	return guest.Tool{Name: tool, Description: "A tool of the conformance suite.", Handler: h, Hints: guest.Hints{Readonly: true}}
}

// long makes a tool that can become a task.
func long(tool string, h guest.Handler) guest.Tool {
	t := quick(tool, h)
	t.Hints.SupportsBackground = true
	return t
}

// work is how long a tool works before it does what it is for: longer than the
// server of the suite waits before a call is a task. Other servers wait longer.
type work struct {
	Seconds float64 `json:"seconds" min:"0" max:"60" default:"2.5"`
}

func (w work) do(c *guest.Call) error {
	return c.Sleep(time.Duration(w.Seconds * float64(time.Second)))
}

func progress(c *guest.Call, _ nothing) (string, error) {
	for done := range 3 {
		if err := c.Progress(float64(50*done), 100, fmt.Sprintf("step %d", done)); err != nil {
			return "", err
		}
		if err := c.Sleep(300 * time.Millisecond); err != nil { // the host tells a client four times a second at most
			return "", err
		}
	}
	return "three steps done", nil
}

// ask makes a tool that asks one question after the other, and answers with
// what its last function makes of the answers.
func ask(tool string, end func([]guest.Answer) (string, error), questions ...question) guest.Tool {
	return quick(tool, guest.Handle(func(c *guest.Call, _ nothing) (string, error) {
		var given []guest.Answer
		for _, q := range questions {
			a, err := q.put(c)
			if err != nil {
				return "", err
			}
			given = append(given, a)
		}
		return end(given)
	}))
}

type question struct{ key, message, schema string }

func (q question) put(c *guest.Call) (guest.Answer, error) {
	answers, err := c.Ask(map[string]guest.Question{q.key: guest.Form(q.message, q.schema)})
	return answers[q.key], err
}

const (
	nameSchema    = `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`
	okSchema      = `{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`
	confirmSchema = `{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}`
	colorSchema   = `{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}`
	userSchema    = `{"type":"object","properties":{"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}},"required":["username","email"]}`
	defaults      = `{"type":"object","properties":{"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}},"required":[]}`
	enums         = `{"type":"object","properties":{"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},"untitledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"type":"string","enum":["option1","option2","option3"]}},"titledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}},"required":[]}`
)

// field is a text in the content of an answer that was accepted.
func field(a guest.Answer, key string) (string, error) {
	var content map[string]any
	if a.Action != "accept" || json.Unmarshal(a.Content, &content) != nil {
		return "", fmt.Errorf("the user did not tell the %s", key)
	}
	text, ok := content[key].(string)
	if !ok || text == "" {
		return "", fmt.Errorf("the user gave no %s", key)
	}
	return text, nil
}

func greetUser(given []guest.Answer) (string, error) {
	name, err := field(given[0], "name")
	return "Hello, " + name + "!", err
}

func whatHappened(given []guest.Answer) (string, error) {
	return fmt.Sprintf("User response: action=%s, content=%s", given[0].Action, given[0].Content), nil
}

func elicitation(c *guest.Call, in struct {
	Message string `json:"message" desc:"The message to show the user"`
}) (string, error) {
	a, err := question{"user", in.Message, userSchema}.put(c)
	return fmt.Sprintf("User response: action=%s, content=%s", a.Action, a.Content), err
}

func nameAndColor(given []guest.Answer) (string, error) {
	name, err1 := field(given[0], "name")
	color, err2 := field(given[1], "color")
	return name + " likes " + color, errors.Join(err1, err2)
}

func stateOK(given []guest.Answer) (string, error) {
	if given[0].Action != "accept" {
		return "", errors.New("the user did not confirm")
	}
	return "state-ok", nil
}

// askThenWork asks while its caller waits, and continues as a task.
func askThenWork(c *guest.Call, in work) (string, error) {
	a, err := question{"user_name", "What is your name?", nameSchema}.put(c)
	if err != nil {
		return "", err
	}
	name, err := field(a, "name")
	if err == nil {
		err = in.do(c)
	}
	return "done for " + name, err
}

func compute(c *guest.Call, in struct {
	Seconds float64 `json:"seconds" min:"0" max:"600"`
	Label   string  `json:"label,omitempty"`
}) (string, error) {
	if err := c.Progress(0, in.Seconds, "computing"); err != nil {
		return "", err
	}
	if in.Seconds > 0 { // or it is to be no task
		in.Seconds = max(in.Seconds, 2.5)
	}
	if err := c.Sleep(time.Duration(in.Seconds * float64(time.Second))); err != nil {
		return "", err
	}
	return "computed " + in.Label, nil
}

func confirm(c *guest.Call, in struct {
	Filename string  `json:"filename"`
	Seconds  float64 `json:"seconds" min:"0" max:"60" default:"2.5"`
}) (string, error) {
	if err := (work{in.Seconds}).do(c); err != nil {
		return "", err
	}
	a, err := question{"confirm", "Delete " + in.Filename + "?", confirmSchema}.put(c)
	return in.Filename + ": " + a.Action, err
}

func twoQuestions(c *guest.Call, in work) (string, error) {
	if err := in.do(c); err != nil {
		return "", err
	}
	answers, err := c.Ask(map[string]guest.Question{
		"name": guest.Form("What is your name?", nameSchema), "confirm": guest.Form("Go on?", confirmSchema),
	})
	return fmt.Sprintf("%s and %s", answers["name"].Action, answers["confirm"].Action), err
}

func fail(c *guest.Call, in work) (string, error) {
	if err := in.do(c); err != nil {
		return "", err
	}
	return "", errors.New("this job always fails")
}

func crash(c *guest.Call, in work) (string, error) {
	if err := in.do(c); err != nil {
		return "", err
	}
	panic("this job crashes")
}

func greet(_ *guest.Call, in struct {
	Name string `json:"name"`
}) (string, error) {
	return "Hello, " + in.Name + "!", nil
}

// plugins are the tools of each plugin.
var plugins = map[string][]guest.Tool{
	"test": {
		say("simple_text", "This is a simple text response for testing."),
		say("streaming_elicitation", "A response stream has no requests in it."),
		show("image_content", image), show("audio_content", audio), show("embedded_resource", embedded),
		show("multiple_content_types", guest.TextBlock("Multiple content types test:"), image,
			guest.ResourceBlock("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`)),
		quick("tool_with_progress", guest.Handle(progress)),
		quick("error_handling", guest.Handle(func(*guest.Call, nothing) (string, error) {
			return "", errors.New("This tool intentionally returns an error for testing")
		})),
		quick("elicitation", guest.Handle(elicitation)),
		ask("elicitation_sep1034_defaults", whatHappened, question{"user", "Please review and update the form fields with defaults", defaults}),
		ask("elicitation_sep1330_enums", whatHappened, question{"user", "Please select options from the enum fields", enums}),
		ask("input_required_result_elicitation", greetUser, question{"user_name", "What is your name?", nameSchema}),
		ask("input_required_result_request_state", stateOK, question{"confirm", "Please confirm", okSchema}),
		ask("input_required_result_multi_round", nameAndColor,
			question{"step1", "Step 1: What is your name?", nameSchema}, question{"step2", "Step 2: What is your favorite color?", colorSchema}),
		long("tool_with_task", guest.Handle(askThenWork)),
	},
	"greet":    {quick("greet", guest.Handle(greet))},
	"slow":     {long("compute", guest.Handle(compute))},
	"failing":  {long("job", guest.Handle(fail))},
	"protocol": {long("error_job", guest.Handle(crash))},
	"confirm":  {long("delete", guest.Handle(confirm))},
	"multi":    {long("input", guest.Handle(twoQuestions))},
}

var plugin guest.Plugin

func init() {
	plugin = guest.Plugin{
		Name: name, Version: "1.0.0", Description: "Tools of the MCP conformance suite.",
		Needs: guest.Needs{Clock: true, Ask: true}, Tools: plugins[name],
	}
	guest.Serve(&plugin)
}

func main() {}
