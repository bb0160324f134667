package guesttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
)

type args struct {
	N int `json:"n" min:"0" max:"10"`
}

func halve(_ *guest.Call, in args) (int, error) {
	if in.N%2 != 0 {
		return 0, guest.Errorf("%d is odd", in.N)
	}
	return in.N / 2, nil
}

func plugin(tools ...guest.Tool) *guest.Plugin {
	return &guest.Plugin{Name: "p", Version: "1.0.0", Description: "For tests.", Tools: tools}
}

func tool(h guest.Handler, examples ...guest.Example) guest.Tool {
	return guest.Tool{Name: "tool", Description: "For tests.", Handler: h, Examples: examples}
}

func TestCheck(t *testing.T) {
	Check(t, plugin(tool(guest.Handle(halve),
		guest.Example{Name: "even", Args: args{4}, Result: 2},
		guest.Example{Args: args{3}, Error: "odd"},
		guest.Example{Name: "too large", Args: args{11}, Error: "/n: expected at most 10"},
	)))
}

func TestWrongExamples(t *testing.T) {
	for name, c := range map[string]struct {
		example guest.Example
		want    string
	}{
		"other result":         {guest.Example{Args: args{4}, Result: 3}, `expected the result 3, found 2`},
		"error, not a result":  {guest.Example{Args: args{3}, Result: 1}, "expected a success"},
		"result, not an error": {guest.Example{Args: args{4}, Error: "odd"}, `expected a tool error with "odd"`},
		"other error":          {guest.Example{Args: args{3}, Error: "even"}, `expected a tool error with "even"`},
		"arguments do not fit": {guest.Example{Args: args{-1}, Result: 1}, "/n: expected at least 0, found -1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := plugin(tool(guest.Handle(halve), c.example))
			m, err := p.Manifest()
			require.NoError(t, err)
			require.Contains(t, wrongExample(Host{}, p, &m.Tools[0], m.Tools[0].Examples[0]), c.want)
		})
	}
}

func TestBadSchema(t *testing.T) {
	type bad struct {
		Text string `json:"text" pattern:"("`
	}
	p := plugin(tool(guest.Handle(func(*guest.Call, bad) (guest.None, error) { return guest.None{}, nil })))
	m, err := p.Manifest()
	require.NoError(t, err)
	require.Contains(t, badSchema(&m.Tools[0]), "input schema: bad schema")
}

func TestBadDefault(t *testing.T) {
	type bad struct {
		N int `json:"n" max:"3" default:"5"`
	}
	p := plugin(tool(guest.Handle(func(*guest.Call, bad) (guest.None, error) { return guest.None{}, nil })))
	m, err := p.Manifest()
	require.NoError(t, err)
	require.Equal(t, "input schema: bad schema: /properties/n/default: does not fit its own schema: expected at most 3, found 5", badSchema(&m.Tools[0]))
}

// Arguments are completed and checked as by any host.
func TestFill(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer","default":5}}}`)
	for args, want := range map[string][2]string{
		`{}`:        {`{"n":5}`, ""},
		`{"n":1}`:   {`{"n":1}`, ""},
		`{"n":"1"}`: {"", "/n: expected integer, found string"},
	} {
		filled, problems := fill(schema, json.RawMessage(args))
		require.Equal(t, want, [2]string{string(filled), problems})
	}
}

func TestOutcome(t *testing.T) {
	handler := func(c *guest.Call, _ struct{}) (string, error) {
		fmt.Fprint(c.Output(), "out")
		fmt.Fprint(c.Stderr(), "err")
		c.Log().Warn("careful", "n", 1)
		_ = c.Progress(1, -1, "one")
		_ = c.Content(guest.TextBlock("text"))
		return c.Config("city"), nil
	}
	h := Host{Facts: guest.Facts{Config: map[string]string{"city": "Bern"}}}
	out := h.Call(plugin(tool(guest.Handle(handler))), "tool", struct{}{})
	require.Equal(t, Outcome{
		Result:   abi.Result{Kind: abi.Success, Value: json.RawMessage(`"Bern"`), Content: []abi.Block{{Type: "text", Text: "text"}}},
		Stdout:   "out",
		Stderr:   "err",
		Progress: []Progress{{Done: 1, Total: -1, Message: "one"}},
		Logs:     []Log{{"warn", "careful n=1"}},
	}, out)
}

func TestCapabilities(t *testing.T) {
	var request json.RawMessage
	h := Host{Capabilities: map[string]func(json.RawMessage) (any, error){
		"works":   func(r json.RawMessage) (any, error) { request = r; return map[string]int{"n": 1}, nil },
		"fails":   func(json.RawMessage) (any, error) { return nil, errors.New("no luck") },
		"limited": func(json.RawMessage) (any, error) { return nil, &guest.HostError{Code: "limit", Message: "too much"} },
		"odd":     func(json.RawMessage) (any, error) { return nil, &guest.HostError{Code: "what"} },
		"denied":  nil,
	}}
	type opArgs struct {
		Op string `json:"op"`
	}
	p := plugin(tool(guest.Handle(func(c *guest.Call, in opArgs) (out any, _ error) {
		err := c.Host(in.Op, in, &out)
		return out, err
	})))
	for op, want := range map[string]string{
		"fails":   "fails: failed: no luck",
		"limited": "limited: limit: too much",
		"odd":     "odd: failed: : what:",
		"denied":  "denied: denied: denied is not granted to this plugin",
		"unknown": "unknown: unknown: this host has no such capability",
	} {
		require.Equal(t, want, h.Call(p, "tool", opArgs{op}).Error, op)
	}

	require.JSONEq(t, `{"n":1}`, string(h.Call(p, "tool", opArgs{"works"}).Value))
	require.JSONEq(t, `{"op":"works"}`, string(request))
}

// TestReadonlyToolCannotWrite: a tool that a host denies its writes does not pass.
func TestReadonlyToolCannotWrite(t *testing.T) {
	for op, f := range map[string]func(guest.Session) error{
		"session.set":    func(s guest.Session) error { return s.Set("p.n", 1) },
		"session.delete": func(s guest.Session) error { return s.Delete("p.n") },
	} {
		readonly := tool(guest.Handle(func(c *guest.Call, _ struct{}) (guest.None, error) {
			if _, err := c.Session().List(); err != nil {
				return guest.None{}, err
			}
			return guest.None{}, f(c.Session())
		}))
		h := Host{Session: &Store{}}
		require.True(t, h.Call(plugin(readonly), "tool", struct{}{}).IsSuccess())
		readonly.Hints.Readonly = true
		require.Equal(t, op+": denied: a tool with the hint readonly cannot write session values: drop the hint, or do not write", h.Call(plugin(readonly), "tool", struct{}{}).Error)
	}
}

func TestStop(t *testing.T) {
	handler := func(c *guest.Call, _ struct{}) (int, error) {
		n := 0
		for c.Progress(float64(n), 10, "") == nil {
			n++
		}
		return n, c.Host("sleep", struct{}{}, nil)
	}
	h := Host{StopAfter: 3, Capabilities: map[string]func(json.RawMessage) (any, error){"sleep": nil}}
	out := h.Call(plugin(tool(guest.Handle(handler))), "tool", struct{}{})
	require.Equal(t, "sleep: canceled: the call is being stopped", out.Error)
	require.Len(t, out.Progress, 3)
}

func TestBrokenCalls(t *testing.T) {
	p := plugin(tool(guest.Handle(halve)))
	for want, out := range map[string]Outcome{
		`plugin p has no tool "other"`:   Call(p, "other", args{}),
		"the arguments have no JSON":     Call(p, "tool", make(chan int)),
		"expected a semantic version":    Call(&guest.Plugin{Name: "p", Description: "x", Tools: p.Tools}, "tool", args{}),
		"the result is not JSON":         Call(plugin(tool(guest.Handle(half))), "tool", struct{}{}),
		"provider is empty":              Call(plugin(tool(guest.Handle(noProvider))), "tool", struct{}{}),
		"the result of tool tool cannot": Call(plugin(tool(guest.Handle(noJSON))), "tool", struct{}{}),
	} {
		require.Equal(t, abi.Internal, out.Kind, want)
		require.Contains(t, out.Error, want)
	}
}

func half(c *guest.Call, _ struct{}) (guest.None, error) {
	return guest.None{}, c.Write(abi.StreamResult, []byte("{"))
}

func noProvider(*guest.Call, struct{}) (guest.None, error) {
	return guest.None{}, guest.ConnectionRequired(guest.Connection{})
}

func noJSON(*guest.Call, struct{}) (any, error) { return func() {}, nil }
