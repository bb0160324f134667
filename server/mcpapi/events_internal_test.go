package mcpapi

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func note(n int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":%d}}`, n)
}

func result(size int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"r","result":{"x":%q}}`, strings.Repeat("x", size))
}

func (e *events) add(t *testing.T, session, stream string, data []byte) {
	require.NoError(t, e.Open(t.Context(), session, ""))
	require.NoError(t, e.Open(t.Context(), session, stream))
	require.NoError(t, e.Append(t.Context(), session, stream, data))
}

func (e *events) list(t *testing.T, session, stream string, index int) (all []string) {
	for data, err := range e.After(t.Context(), session, stream, index) {
		if err != nil {
			require.ErrorIs(t, err, errNotKept)
			return nil
		}
		all = append(all, string(data))
	}
	return all
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEvents(func(session string) string { return session }, func(string) {})
		for i := range 100 { // the first event, and progress
			e.add(t, "a", "s", map[bool][]byte{true: nil, false: note(i)}[i == 0])
		}
		question := []byte(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create"}`)
		e.add(t, "a", "s", question)
		for i := range 100 {
			e.add(t, "a", "s", note(100+i))
		}

		// Notifications are lost, a question is not, and the numbers have no gap.
		all := e.list(t, "a", "s", 10)
		require.Len(t, all, maxNotes+1)
		require.Equal(t, string(question), all[0])
		require.Equal(t, string(note(199)), all[maxNotes])
		require.Equal(t, all[3:], e.list(t, "a", "s", 13))
		e.add(t, "a", "s", result(10))
		require.Equal(t, []string{string(result(10))}, e.list(t, "a", "s", 10+maxNotes+1))
		require.Empty(t, e.list(t, "a", "s", 10+maxNotes+2))
		require.Nil(t, e.list(t, "b", "s", 0))

		// Ended streams make room, the oldest first; one client does not take all of it.
		for i := range 100 {
			e.add(t, "a", fmt.Sprint(i), result(900<<10))
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, e.pool.Used(), maxEventsOfClient)
		require.Nil(t, e.list(t, "a", "50", -1))
		require.Len(t, e.list(t, "a", "99", -1)[0], len(result(900<<10)))
		e.add(t, "b", "s", result(900<<10))
		require.Len(t, e.list(t, "b", "s", -1)[0], len(result(900<<10)))

		require.NoError(t, e.SessionClosed(t.Context(), "a"))
		require.NoError(t, e.SessionClosed(t.Context(), "b"))
		require.Zero(t, e.pool.Used())
		require.NoError(t, e.Append(t.Context(), "a", "s", result(10)), "a late response")
		require.Error(t, e.Open(t.Context(), "a", "s"))
		require.Empty(t, e.sessions)
	})
}

func TestReadEvent(t *testing.T) {
	for text, want := range map[string][2]string{
		"event: message\nid: x_1\ndata: {}\n\n": {"x_1", "{}"},
		"event: message\ndata: {}\n\n":          {"", "{}"},
		"event: prime\nid: x_0\ndata: \n\n":     {"x_0", ""},
		": ok\n\n":                              {"", ""},
		"event: close\nretry: 10\ndata: \n\n":   {"", ""},
		"":                                      {"", ""},
	} {
		id, data := readEvent([]byte(text))
		require.Equal(t, want, [2]string{id, string(data)}, text)
	}
}
