package guest_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/guesttest"
	"github.com/toolhost/toolhost/guest/internal/vectors"
)

// vector is one case of a file of abi/testdata; its README says what the fields mean.
type vector struct {
	Name, Why string
	Tool      string
	Args      json.RawMessage
	Big       *struct {
		Text  string
		Count int
	}
	Host struct {
		Session   string
		Attempt   int
		Locale    string
		Config    map[string]string
		Clock     bool
		Values    abi.StoreMode `json:"session_values"`
		KV        abi.StoreMode `json:"kv"`
		Messages  []json.RawMessage
		Tools     map[string]guest.ToolAnswer
		Secrets   map[string]bool
		StopAfter int `json:"stop_after"`

		Together    int
		Lost        []string
		StopAfterMS int `json:"stop_after_ms"`
	}
	Sandbox bool
	Unless  string
	Want    want
}

type want struct {
	Kind           abi.Kind
	Value          json.RawMessage
	Content        []abi.Block
	Error, Summary string
	Connection     *abi.Connection
	ExitCode       *int `json:"exit_code"`
	Stdout, Stderr string
	Progress       []guesttest.Progress
	Logs           []guesttest.Log
}

func readVectors(t *testing.T, name string) []vector {
	data, err := os.ReadFile("../abi/testdata/" + name)
	require.NoError(t, err)
	var file struct {
		Plugin string
		Cases  []vector
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&file))

	require.Equal(t, vectors.Plugin().Name, file.Plugin)
	for i := range file.Cases {
		if v := &file.Cases[i]; v.Big != nil {
			v.Want.Value, _ = json.Marshal(strings.Repeat(v.Big.Text, v.Big.Count))
			v.Args, _ = json.Marshal(map[string]json.RawMessage{"value": v.Want.Value})
		}
	}

	return file.Cases
}

// TestVectors runs the contract vectors in process. The host's tests run them
// in a sandbox.
func TestVectors(t *testing.T) {
	called, plugin := map[string]bool{}, vectors.Plugin()
	names := map[string]bool{}
	for _, v := range append(readVectors(t, "calls.json"), readVectors(t, "waiting.json")...) {
		called[v.Tool] = true
		require.False(t, names[v.Name], "the name %q is given twice", v.Name)
		names[v.Name] = true
		t.Run(v.Name, func(t *testing.T) {
			if v.Sandbox {
				t.Skip("needs a sandbox")
			}
			synctest.Test(t, func(t *testing.T) { v.Want.check(t, v.host().Call(plugin, v.Tool, v.Args)) })
		})
	}

	for _, tool := range plugin.Tools {
		require.True(t, called[tool.Name], "tool %s has no vector", tool.Name)
	}
}

// host is the host that a vector asks for.
func (v vector) host() guesttest.Host {
	h := guesttest.Host{
		Facts:        guest.Facts{Session: v.Host.Session, Attempt: v.Host.Attempt, Locale: v.Host.Locale, Config: v.Host.Config},
		Capabilities: map[string]func(json.RawMessage) (any, error){"sleep": nil},
		StopAfter:    v.Host.StopAfter,
		Messages:     v.Host.Messages,
		Secrets:      v.Host.Secrets,
		Tools:        map[string]func(json.RawMessage) (any, error){},
	}
	if v.Host.Values != "" {
		h.Session = &guesttest.Store{ReadOnly: v.Host.Values == abi.StoreRead}
	}
	if v.Host.KV != "" {
		h.KV = &guesttest.Store{ReadOnly: v.Host.KV == abi.StoreRead}
	}
	if v.Host.Clock {
		h.Capabilities["sleep"] = sleep
	}

	var together sync.WaitGroup
	together.Add(v.Host.Together)
	for name, answer := range v.Host.Tools {
		h.Tools[name] = func(json.RawMessage) (any, error) {
			if v.Host.Together > 0 {
				together.Done()
				together.Wait()
			}
			if slices.Contains(v.Host.Lost, name) {
				return nil, &guest.HostError{Code: "lost", Message: "its host has died"}
			}
			return answer, nil
		}
	}
	return h
}

// sleep is the capability of that name.
func sleep(request json.RawMessage) (any, error) {
	var in struct{ MS *int64 }
	if json.Unmarshal(request, &in) != nil || in.MS == nil {
		return nil, &guest.HostError{Code: "invalid", Message: `expected {"ms"}`}
	}
	time.Sleep(time.Duration(*in.MS) * time.Millisecond)
	return struct{}{}, nil
}

func (w want) check(t *testing.T, got guesttest.Outcome) {
	require.Equal(t, w.Kind, got.Kind, got)
	if w.Value == nil {
		require.Nil(t, got.Value)
	} else {
		require.JSONEq(t, string(w.Value), string(got.Value))
	}

	require.Equal(t, w.Content, got.Content)
	require.Equal(t, w.Summary, got.Summary)
	require.Equal(t, w.Connection, got.Connection)
	require.Equal(t, w.ExitCode, got.ExitCode)
	require.Equal(t, w.Stdout, got.Stdout)
	require.Equal(t, w.Stderr, got.Stderr)
	require.Equal(t, w.Progress, got.Progress)
	if w.Kind == abi.ToolError {
		require.Equal(t, w.Error, got.Error)
	}
	if w.Kind != abi.Internal {
		require.Equal(t, w.Logs, got.Logs)
	}
}

func TestVectorsManifest(t *testing.T) { guesttest.Check(t, vectors.Plugin()) }
