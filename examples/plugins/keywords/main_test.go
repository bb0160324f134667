package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }

func TestREADME(t *testing.T) { readme.Check(t, &plugin) }

func sent(messages ...string) (all []json.RawMessage) {
	for _, m := range messages {
		all = append(all, json.RawMessage(m))
	}
	return all
}

func TestMessages(t *testing.T) {
	h := guesttest.Host{Messages: sent(`"Green tea"`, `{"text":"green hills"}`, `{"txt":"a slip"}`, `7`, `{"text":"the green line","finish":true}`, `"green again"`)}
	o := h.Call(&plugin, "keywords", args{Texts: []string{"Green leaves"}, Top: 1})
	require.JSONEq(t, `{"texts":4,"words":[{"word":"green","texts":4,"count":4}]}`, string(o.Value), o.Error)
	require.Equal(t, `Read 4 texts; most share "green".`, o.Summary)
	require.Equal(t, 2, strings.Count(o.Stdout, "was not understood: send a text as a string"))

	h.Messages = sent(`"Green tea"`)
	o = h.Call(&plugin, "keywords", args{})
	require.JSONEq(t, `{"texts":1,"words":[{"word":"green","texts":1,"count":1}]}`, string(o.Value), "it finishes when no more come")
}

// Messages that come again after an interruption are counted once, wherever it was.
func TestEachMessageCountsOnce(t *testing.T) {
	messages := sent(`"Green tea"`, `"green hills"`, `{"finish":true}`)
	for reports := range 5 {
		t.Run(fmt.Sprint(reports), func(t *testing.T) {
			var saved []byte
			h := guesttest.Host{Messages: messages, Checkpoint: &saved, StopAfter: reports}
			first := h.Call(&plugin, "keywords", args{Texts: []string{"green leaves"}, Top: 1})
			if reports > 0 && reports < 4 {
				require.Equal(t, "canceled", first.Error)
			}
			require.NotNil(t, saved)
			h.StopAfter = 0
			second := h.Call(&plugin, "keywords", args{Texts: []string{"green leaves"}, Top: 1})
			require.JSONEq(t, `{"texts":3,"words":[{"word":"green","texts":3,"count":3}]}`, string(second.Value), second.Error)
		})
	}
}

// A checkpoint fits into what a host stores, whatever the texts.
func TestBound(t *testing.T) {
	var text strings.Builder
	for i := range maxWords + 1 {
		digits := strings.NewReplacer("0", "a", "1", "b", "2", "c", "3", "d", "4", "e", "5", "f", "6", "g", "7", "h", "8", "i", "9", "j").Replace(fmt.Sprintf("%06d", i))
		text.WriteString(digits + strings.Repeat("z", longest-len(digits)) + " ")
	}
	s := state{Counts: map[string][2]int{}}
	s.add(text.String())
	require.Len(t, s.Counts, maxWords)
	require.True(t, s.result(1).Full)
	data, err := json.Marshal(s)
	require.NoError(t, err)
	require.Less(t, len(data), 1<<20)
}
