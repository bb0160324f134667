package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, newPlugin(box(t.TempDir()))) }

func TestREADME(t *testing.T) { readme.Check(t, newPlugin("/box")) }

// seconds is a host that lets so many seconds pass and then stops the call.
func seconds(n int) guesttest.Host {
	return guesttest.Host{Capabilities: map[string]func(json.RawMessage) (any, error){
		"sleep": func(json.RawMessage) (any, error) {
			if n--; n < 0 {
				return nil, &guest.HostError{Code: "canceled"}
			}
			return struct{}{}, nil
		},
	}}
}

func TestPost(t *testing.T) {
	dir := t.TempDir()
	letter := args{To: []string{"Ana", "Bo", "Zoë\n"}, Text: "hello"}
	h := seconds(10)
	out := h.Call(newPlugin(box(dir)), "post", letter)
	require.True(t, out.IsSuccess(), out)
	require.JSONEq(t, `{"posted":3}`, string(out.Value))

	h = seconds(1)
	out = h.Call(newPlugin(box(dir)), "post", letter)
	require.Equal(t, abi.ToolError, out.Kind)
	require.Contains(t, out.Error, "1 of 3 letters were posted")

	text, err := os.ReadFile(filepath.Join(dir, "posted.txt"))
	require.NoError(t, err)
	require.Equal(t, "\"Ana\": \"hello\"\n\"Bo\": \"hello\"\n\"Zoë\\n\": \"hello\"\n\"Ana\": \"hello\"\n", string(text), "what was posted is posted again")
}
