package abi_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

// What a tool needs is what it and its plugin need: each need once, with the mode that
// allows more.
func TestNeedsOfTools(t *testing.T) {
	m := &abi.Manifest{
		Needs: abi.Needs{
			Files: []abi.FileNeed{{Path: "/work", Mode: abi.FileRead}}, KV: abi.StoreWrite, Session: abi.StoreRead, Env: []string{"A", "A"},
			HTTP: []abi.HTTPNeed{{URL: "https://a.example/*"}}, Optional: &abi.Needs{Ask: true, KV: abi.StoreRead},
		},
		Tools: []abi.Tool{{Name: "plain"}, {Name: "writer", Needs: abi.Needs{
			Files: []abi.FileNeed{{Path: "/work", Mode: abi.FileWrite}, {Path: "/work", Mode: abi.FileRead}, {Path: "/tmp", Mode: abi.FileRead}},
			KV:    abi.StoreRead, Session: abi.StoreWrite, Env: []string{"B", "A"}, Clock: true, Tools: []string{"other"},
			HTTP:     []abi.HTTPNeed{{URL: "https://a.example/*"}, {URL: "https://a.example/*", Methods: []string{"POST"}}},
			Optional: &abi.Needs{Secrets: []string{"key"}},
		}}},
	}
	before := m.Needs.Files[0]

	plain := m.NeedsOf(&m.Tools[0])
	require.Equal(t, abi.Needs{
		Files: m.Needs.Files, KV: abi.StoreWrite, Session: abi.StoreRead, Env: []string{"A"}, HTTP: m.Needs.HTTP, Optional: m.Needs.Optional,
	}, plain)

	all := abi.Needs{
		Files: []abi.FileNeed{{Path: "/work", Mode: abi.FileWrite}, {Path: "/tmp", Mode: abi.FileRead}},
		KV:    abi.StoreWrite, Session: abi.StoreWrite, Env: []string{"A", "B"}, Clock: true, Tools: []string{"other"},
		HTTP:     m.Tools[1].Needs.HTTP,
		Optional: &abi.Needs{Ask: true, KV: abi.StoreRead, Secrets: []string{"key"}},
	}
	require.Equal(t, all, m.NeedsOf(&m.Tools[1]))
	require.Equal(t, all, m.AllNeeds())

	all.Optional, all.Ask, all.Secrets = nil, true, []string{"key"}
	require.Equal(t, all, m.AllNeeds().All())
	require.Equal(t, before, m.Needs.Files[0], "the manifest stays as it is")
}

// No need is lost in a union, whichever set has it.
func TestUnionOfNeeds(t *testing.T) {
	var one abi.Needs
	require.NoError(t, json.Unmarshal([]byte(`{"files":[{"path":"/work","mode":"read"}],"env":["A"],"http":[{"url":"https://a.example/*"}],
		"kv":"read","session":"read","tools":["other"],"secrets":["key"],"clock":true,"random":true,"ask":true,"optional":{"clock":true}}`), &one))
	fields := reflect.ValueOf(one)
	for i := range fields.NumField() {
		require.NotZero(t, fields.Field(i).Interface(), "%s is missing in this test", fields.Type().Field(i).Name)
	}
	require.Equal(t, one, one.With(abi.Needs{}))
	require.Equal(t, one, abi.Needs{}.With(one))
}

// The needs of a plugin are not compared with each other once for each of its tools.
func TestManyDirectories(t *testing.T) {
	m := abi.Manifest{ABI: abi.Version, Name: "p", Version: "1.0.0", Description: "P.", Needs: abi.Needs{Files: []abi.FileNeed{{Path: "/work", Mode: abi.FileRead}}}}
	for i := range abi.MaxNeeds - 1 {
		m.Needs.Env = append(m.Needs.Env, fmt.Sprintf("E%d", i))
	}
	for i := range abi.MaxTools {
		m.Tools = append(m.Tools, abi.Tool{Name: fmt.Sprintf("t%d", i), Description: "T.", InputSchema: json.RawMessage(`{"type":"object"}`), Command: abi.Command{Dir: "/work"}})
	}
	data, err := json.Marshal(m)
	require.NoError(t, err)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = abi.DecodeManifest(data)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
}
