package main

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }

func TestREADME(t *testing.T) { readme.Check(t, &plugin) }

// texts are the facts that recall finds.
func texts(t *testing.T, h guesttest.Host, in recallArgs) (all []string) {
	t.Helper()
	out := h.Call(&plugin, "recall", in)
	require.True(t, out.IsSuccess(), out.Error)
	var found facts
	require.NoError(t, json.Unmarshal(out.Value, &found))
	for _, f := range found.Facts {
		all = append(all, f.Text)
	}
	return all
}

func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guesttest.Host{KV: &guesttest.Store{}}
		require.Empty(t, texts(t, h, recallArgs{}))
		for _, in := range []rememberArgs{
			{Text: "Ana prefers tea.", Topic: "user"},
			{Text: "The build takes ten minutes.", Topic: "project", Days: 1},
			{Text: "ana  prefers TEA.", Topic: "user"},
			{Text: "Ana lives in Graz.", Topic: "user"},
		} {
			require.True(t, h.Call(&plugin, "remember", in).IsSuccess())
			time.Sleep(time.Minute)
		}
		require.Equal(t, []string{"Ana lives in Graz.", "ana  prefers TEA."}, texts(t, h, recallArgs{Topic: "user"}), "the same fact once, the newest first")
		require.Equal(t, []string{"ana  prefers TEA.", "Ana lives in Graz."}, texts(t, h, recallArgs{Query: "ana tea"}))
		require.Equal(t, []string{"ana  prefers TEA."}, texts(t, h, recallArgs{Query: "ana tea", Limit: 1}))
		require.Len(t, texts(t, h, recallArgs{}), 3)

		time.Sleep(24 * time.Hour)
		require.Len(t, texts(t, h, recallArgs{}), 2, "one was to be kept for a day")

		var f facts
		require.NoError(t, json.Unmarshal(h.Call(&plugin, "recall", recallArgs{Query: "graz"}).Value, &f))
		require.JSONEq(t, `{"forgotten":true}`, string(h.Call(&plugin, "forget", forgetArgs{ID: f.Facts[0].ID, Topic: "user"}).Value))
		require.JSONEq(t, `{"forgotten":false}`, string(h.Call(&plugin, "forget", forgetArgs{ID: f.Facts[0].ID, Topic: "user"}).Value))
		require.Empty(t, texts(t, h, recallArgs{Query: "graz"}))
	})
}

func TestMemoryNeedsTheGrant(t *testing.T) {
	require.Contains(t, guesttest.Host{}.Call(&plugin, "recall", recallArgs{}).Error, "denied")
	require.Contains(t, guesttest.Host{KV: &guesttest.Store{ReadOnly: true}}.Call(&plugin, "remember", rememberArgs{Text: "x"}).Error, "denied")
}
