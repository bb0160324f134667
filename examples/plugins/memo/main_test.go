package main

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }

func TestREADME(t *testing.T) { readme.Check(t, &plugin) }

func TestNotesAreOfTheSession(t *testing.T) {
	h := guesttest.Host{Session: &guesttest.Store{}}
	require.JSONEq(t, `{"lines":[]}`, string(h.Call(&plugin, "read", readArgs{"list"}).Value))
	require.True(t, h.Call(&plugin, "write", writeArgs{"list", "milk"}).IsSuccess())
	require.True(t, h.Call(&plugin, "write", writeArgs{"list", "bread"}).IsSuccess())
	require.JSONEq(t, `{"lines":["milk","bread"]}`, string(h.Call(&plugin, "read", readArgs{"list"}).Value))

	other := guesttest.Host{Session: &guesttest.Store{}}
	require.JSONEq(t, `{"lines":[]}`, string(other.Call(&plugin, "read", readArgs{"list"}).Value))
}

func TestNoLineIsLost(t *testing.T) {
	h := guesttest.Host{Session: &guesttest.Store{}}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { h.Call(&plugin, "write", writeArgs{"list", "x"}) })
	}
	all.Wait()
	require.JSONEq(t, `{"lines":["x","x","x","x","x","x","x","x","x","x","x","x","x","x","x","x","x","x","x","x"]}`, string(h.Session.Value("memo.list")))
}

func TestWritingNeedsTheGrant(t *testing.T) {
	h := guesttest.Host{Session: &guesttest.Store{ReadOnly: true}}
	require.True(t, h.Call(&plugin, "read", readArgs{"list"}).IsSuccess())
	require.Contains(t, h.Call(&plugin, "write", writeArgs{"list", "milk"}).Error, "denied")
}
