// Package vectors is the fixture plugin of the contract vectors in
// abi/testdata: its tools behave as the README there describes.
// guest/testdata/vectors builds it as a module.
package vectors

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
)

type valueArgs struct {
	Value json.RawMessage `json:"value"`
}

func echo(_ *guest.Call, in valueArgs) (json.RawMessage, error) { return in.Value, nil }

func nothing(*guest.Call, struct{}) (guest.None, error) { return guest.None{}, nil }

type partsArgs struct {
	Parts []string `json:"parts"`
	Error string   `json:"error,omitempty"`
}

// parts writes the result itself, in parts.
func parts(c *guest.Call, in partsArgs) (guest.None, error) {
	for _, p := range in.Parts {
		if err := c.Write(abi.StreamResult, []byte(p)); err != nil {
			return guest.None{}, err
		}
	}
	if in.Error != "" {
		return guest.None{}, errors.New(in.Error)
	}
	return guest.None{}, nil
}

type textArgs struct {
	Text string `json:"text"`
}

func fail(_ *guest.Call, in textArgs) (guest.None, error) {
	return guest.None{}, guest.Errorf("%s", in.Text)
}

func panics(_ *guest.Call, in textArgs) (guest.None, error) { panic(in.Text) }

func connect(_ *guest.Call, in guest.Connection) (guest.None, error) {
	return guest.None{}, guest.ConnectionRequired(in)
}

type outputArgs struct {
	Writes []struct {
		To   string `json:"to" enum:"stdout,stderr"`
		Text string `json:"text"`
	} `json:"writes"`
}

func output(c *guest.Call, in outputArgs) (guest.None, error) {
	for _, w := range in.Writes {
		to := c.Output()
		if w.To == "stderr" {
			to = c.Stderr()
		}
		if _, err := fmt.Fprint(to, w.Text); err != nil {
			return guest.None{}, err
		}
	}
	return guest.None{}, nil
}

// prints writes to the two outputs through WASI.
func prints(_ *guest.Call, in outputArgs) (guest.None, error) {
	for _, w := range in.Writes {
		to := os.Stdout
		if w.To == "stderr" {
			to = os.Stderr
		}
		if _, err := fmt.Fprint(to, w.Text); err != nil {
			return guest.None{}, err
		}
	}
	return guest.None{}, nil
}

type progressArgs struct {
	Steps []struct {
		Done    float64 `json:"done"`
		Total   float64 `json:"total"`
		Message string  `json:"message,omitempty"`
	} `json:"steps"`
}

type codes struct {
	Codes []int32 `json:"codes"`
}

// code returns the code of a contract function from its error.
func code(err error) int32 {
	if w, ok := errors.AsType[*guest.WriteError](err); ok {
		return w.Code
	}
	if errors.Is(err, guest.ErrCanceled) {
		return abi.Canceled
	}
	return abi.Continue
}

func progress(c *guest.Call, in progressArgs) (out codes, _ error) {
	for _, s := range in.Steps {
		out.Codes = append(out.Codes, code(c.Progress(s.Done, s.Total, s.Message)))
	}
	return out, nil
}

type contentArgs struct {
	Blocks []json.RawMessage `json:"blocks"`
	Error  string            `json:"error,omitempty"`
	Why    bool              `json:"why,omitempty"`
}

type reasons struct {
	codes
	Why []string `json:"why,omitempty"`
}

func content(c *guest.Call, in contentArgs) (out reasons, _ error) {
	for _, b := range in.Blocks {
		err := c.Write(abi.StreamContent, b)
		out.Codes = append(out.Codes, code(err))
		if w, ok := errors.AsType[*guest.WriteError](err); ok && in.Why {
			out.Why = append(out.Why, w.Reason)
		}
	}
	if in.Error != "" {
		return out, errors.New(in.Error)
	}
	return out, nil
}

type logArgs struct {
	Records []struct {
		Level   string `json:"level" enum:"debug,info,warn,error"`
		Message string `json:"message"`
	} `json:"records"`
}

func log(c *guest.Call, in logArgs) (guest.None, error) {
	l := c.Log()
	write := map[string]func(string, ...any){"debug": l.Debug, "info": l.Info, "warn": l.Warn, "error": l.Error}
	for _, r := range in.Records {
		write[r.Level](r.Message)
	}
	return guest.None{}, nil
}

type writeArgs struct {
	Stream int32  `json:"stream"`
	Text   string `json:"text"`
}

func write(c *guest.Call, in writeArgs) (codes, error) {
	return codes{[]int32{code(c.Write(abi.Stream(in.Stream), []byte(in.Text)))}}, nil
}

type factsResult struct {
	Tool    string            `json:"tool"`
	Session string            `json:"session"`
	Attempt int               `json:"attempt"`
	Locale  string            `json:"locale"`
	Config  map[string]string `json:"config"`
}

func facts(c *guest.Call, _ struct{}) (factsResult, error) {
	f := c.Facts()
	return factsResult{c.Tool(), f.Session, f.Attempt, f.Locale, f.Config}, nil
}

type absentResult struct {
	Absent bool `json:"absent"`
}

func script(c *guest.Call, _ struct{}) (absentResult, error) {
	return absentResult{c.Script() == nil}, nil
}

type hostArgs struct {
	Op      string          `json:"op"`
	Request json.RawMessage `json:"request"`
}

type hostResult struct {
	Failure  string          `json:"failure,omitempty"`
	Response json.RawMessage `json:"response,omitempty"`
}

func host(c *guest.Call, in hostArgs) (out hostResult, err error) {
	err = c.Host(in.Op, in.Request, &out.Response)
	if failure, ok := errors.AsType[*guest.HostError](err); ok {
		return hostResult{Failure: failure.Code}, nil
	}
	return out, err
}

type reportArgs struct {
	Reports []struct {
		Status  *string `json:"status,omitempty"`
		Unit    *string `json:"unit,omitempty"`
		Summary *string `json:"summary,omitempty"`
		Done    float64 `json:"done,omitempty"`
		Total   float64 `json:"total,omitempty"`
	} `json:"reports"`
	Error string `json:"error,omitempty"`
}

func report(c *guest.Call, in reportArgs) (guest.None, error) {
	for _, r := range in.Reports {
		var err error
		switch {
		case r.Status != nil:
			err = c.Status(*r.Status)
		case r.Unit != nil:
			err = c.ProgressUnit(*r.Unit)
		case r.Summary != nil:
			err = c.Summary(*r.Summary)
		default:
			err = c.Progress(r.Done, r.Total, "")
		}
		if err != nil {
			return guest.None{}, err
		}
	}

	if in.Error != "" {
		return guest.None{}, errors.New(in.Error)
	}
	return guest.None{}, nil
}

type sessionArgs struct {
	Steps []struct {
		Do      string          `json:"do" enum:"get,set,delete,list"`
		Key     string          `json:"key,omitempty"`
		Value   json.RawMessage `json:"value,omitempty"`
		Version *int64          `json:"version,omitempty"`
	} `json:"steps"`
}

// session uses the values of the session, step by step.
func session(c *guest.Call, in sessionArgs) (out []hostResult, err error) {
	for _, step := range in.Steps {
		var answer any
		switch s := c.Session(); step.Do {
		case "get":
			var found struct {
				Version int64           `json:"version"`
				Value   json.RawMessage `json:"value"`
			}
			found.Version, err = s.Get(step.Key, &found.Value)
			answer = found
		case "set":
			if step.Version == nil {
				err = s.Set(step.Key, step.Value)
				break
			}
			answer, err = s.SetIf(step.Key, step.Value, *step.Version)
		case "delete":
			err = s.Delete(step.Key)
		case "list":
			answer, err = s.List()
		}

		one := hostResult{}
		if failure, ok := errors.AsType[*guest.HostError](err); ok {
			one.Failure = failure.Code
		} else if one.Response, err = json.Marshal(answer); err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

type receiveArgs struct {
	Count int `json:"count"`
}

// receive takes messages without waiting; null stands for none.
func receive(c *guest.Call, in receiveArgs) (out []json.RawMessage, _ error) {
	for range in.Count {
		m, err := c.Receive(0)
		switch {
		case err != nil:
			return nil, err
		case m == nil:
			out = append(out, json.RawMessage("null"))
		default:
			out = append(out, m.Data)
		}
	}
	return out, nil
}

type stopArgs struct {
	Finish bool `json:"finish"`
}

// maxReports limits the wait for a host that never stops the call.
const maxReports = 1 << 20

func stop(c *guest.Call, in stopArgs) (string, error) {
	for i := range maxReports {
		if c.Progress(float64(i), -1, "") == nil {
			continue
		}
		if _, err := fmt.Fprintln(c.Output(), "stopping"); !errors.Is(err, guest.ErrCanceled) {
			return "", fmt.Errorf("output after the stop: expected %w, found %w", guest.ErrCanceled, err)
		}
		if in.Finish {
			return "finished", nil
		}
		return "", c.Err()
	}
	return "", errors.New("never stopped")
}

type exitArgs struct {
	Code int `json:"code"`
}

func exit(_ *guest.Call, in exitArgs) (guest.None, error) {
	os.Exit(in.Code)
	return guest.None{}, nil
}

// calls counts the calls of this instance. There must be only one.
var calls int

func state(*guest.Call, struct{}) (int, error) {
	calls++
	return calls, nil
}

// Plugin returns the fixture plugin.
func Plugin() *guest.Plugin {
	return &guest.Plugin{
		Name: "vectors", Version: "1.0.0", Description: "Does what the contract vectors ask for.",
		Tools: []guest.Tool{
			tool("echo", "Returns its value.", guest.Handle(echo)),
			tool("nothing", "Returns no result.", guest.Handle(nothing)),
			tool("parts", "Writes its result in parts.", guest.Handle(parts)),
			tool("fail", "Ends with a tool error.", guest.Handle(fail)),
			tool("panic", "Panics.", guest.Handle(panics)),
			tool("connect", "Requires a connection.", guest.Handle(connect)),
			tool("output", "Writes live output.", guest.Handle(output)),
			tool("print", "Writes live output through WASI.", guest.Handle(prints)),
			tool("progress", "Reports progress.", guest.Handle(progress)),
			tool("content", "Writes content blocks.", guest.Handle(content)),
			tool("log", "Writes log records.", guest.Handle(log)),
			tool("write", "Writes to a stream by its number.", guest.Handle(write)),
			tool("facts", "Returns the facts of the call.", guest.Handle(facts)),
			tool("script", "Tells whether there is a script.", guest.Handle(script)),
			tool("host", "Uses a host capability.", guest.Handle(host)),
			tool("receive", "Receives messages.", guest.Handle(receive)),
			tool("session", "Uses the values of the session.", guest.Handle(session)),
			tool("report", "Reports on itself.", guest.Handle(report)),
			tool("stop", "Reports progress until it is stopped.", guest.Handle(stop)),
			tool("wait", "Waits for operations.", guest.Handle(wait)),
			tool("stuck", "Waits for nothing.", guest.Handle(stuck)),
			tool("exit", "Exits.", guest.Handle(exit)),
			tool("state", "Counts the calls of its instance.", guest.Handle(state)),
		},
	}
}

func tool(name, description string, h guest.Handler) guest.Tool {
	return guest.Tool{Name: name, Description: description, Handler: h}
}
