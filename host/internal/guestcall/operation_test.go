package guestcall_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/calltree"
	"github.com/toolhost/toolhost/host/internal/grant"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/host/internal/meter"
	"github.com/toolhost/toolhost/host/internal/sched"
	"github.com/toolhost/toolhost/internal/fuel"
)

// counter is a global of a guest that counts its fuel.
type counter struct {
	api.MutableGlobal
	left uint64
}

func (c *counter) Get() uint64     { return c.left }
func (c *counter) Set(left uint64) { c.left = left }

// store is a store with one value.
type store struct{ guestcall.Values }

func (store) Get(_ context.Context, key string) (guestcall.Value, error) {
	if key != "known" {
		return guestcall.Value{}, &guestcall.Refusal{Code: abi.CallInvalid, Message: "no such key"}
	}
	return guestcall.Value{Version: 3, Data: json.RawMessage("7")}, nil
}

// stored counts how often the stored state of a call was removed.
type stored struct {
	guestcall.Suspension
	removed int
}

func (s *stored) Act() { s.removed++ }

// newCall returns a call that computes.
func newCall(t *testing.T, g grant.Grant) *guestcall.Call {
	ctx, guest := t.Context(), new(sched.Guest)
	sched.New(func() int { return 1 }).Init(guest, ctx, sched.GuestOptions{})
	c := &guestcall.Call{
		Plugin: "plugin", Grant: &g, Memory: 1 << 20, Fuel: 1 << 40, Context: ctx, Guest: guest,
		Meter:      &meter.Meter{Fuel: fuel.NewMeter(1<<40, func() error { return nil }), Counter: new(counter), Memory: new(instance.Memory)},
		Answer:     &answer.Answer{},
		Tree:       new(calltree.Caller),
		Operations: guestcall.Operations(),
		Suspension: new(stored),
	}
	c.Tree.Begin(nil, guest, c.Meter, time.Now())
	require.True(t, guest.Compute())
	return c
}

func TestOperations(t *testing.T) {
	for name, c := range map[string]struct {
		grant       grant.Grant
		op, request string
		code        int32 // 0: as many bytes as the response has
		response    string
	}{
		"a report":          {grant.Grant{}, "report", `{"summary":"all\nof it"}`, 0, `{}`},
		"a misspelled one":  {grant.Grant{}, "kv.gett", `{}`, abi.CallUnknown, `{"code":"unknown","message":"this host has no such capability, did you mean \"kv.get\"?"}`},
		"one not granted":   {grant.Grant{}, "kv.get", `{"key":"known"}`, abi.CallDenied, `{"code":"denied","message":"kv is not granted to this plugin: have the operator grant it, or name it in the plugin's needs"}`},
		"a granted one":     {grant.Grant{KV: grant.KV{Mode: abi.StoreRead}}, "kv.get", `{"key":"known"}`, 0, `{"version":3,"value":7}`},
		"a refused one":     {grant.Grant{KV: grant.KV{Mode: abi.StoreRead}}, "kv.get", `{"key":"other"}`, abi.CallInvalid, `{"code":"invalid","message":"no such key"}`},
		"one without a run": {grant.Grant{}, "checkpoint.load", `{}`, abi.CallDenied, `{"code":"denied","message":"only a background run has checkpoints: this call is not run again"}`},
		"a sleep":           {grant.Grant{Clock: true}, "sleep", `{"ms":1}`, 0, `{}`},
		"a tool":            {grant.Grant{Tools: []string{"a_b"}}, "tool.call", `{"tool":"a_b"}`, abi.CallDenied, `{"code":"denied","message":"no other tools can be called here"}`},
	} {
		t.Run(name, func(t *testing.T) {
			call := newCall(t, c.grant)
			call.KV = store{}
			code := call.Perform([]byte(c.op), []byte(c.request))
			require.JSONEq(t, c.response, string(call.Response))
			if c.code == 0 {
				c.code = int32(len(call.Response))
			}
			require.Equal(t, c.code, code)
		})
	}
}

func TestOperationsAreCharged(t *testing.T) {
	call := newCall(t, grant.Grant{KV: grant.KV{Mode: abi.StoreRead}})
	call.KV = store{}
	call.Perform([]byte("kv.get"), []byte(`{"key":"known"}`))
	require.Equal(t, int64(100_000), call.Meter.Used(), "it may wait for a disk")
}

// TestWritesRemoveState: a state that does not record a write must not be continued from.
func TestWritesRemoveState(t *testing.T) {
	call := newCall(t, grant.Grant{KV: grant.KV{Mode: abi.StoreWrite}})
	call.Perform([]byte("kv.get"), []byte(`{"key":"known"}`))
	require.Zero(t, call.Suspension.(*stored).removed)
	call.Perform([]byte("kv.set"), []byte(`{"key":"known","value":8}`))
	require.Equal(t, 1, call.Suspension.(*stored).removed)
}
