package httpapi

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/wire"
)

// An event has its piece of the log unchanged, on one line.
func TestOutputEvent(t *testing.T) {
	for _, piece := range []string{"one\r\n\ttwo\n", `<a> & "b" \u0041`, "\x00\x1b[1m\x7f", "ä€😀\u2028\u2029\ufffd\ufeff", "\xff", "half \xc3", "\xed\xa0\x80", strings.Repeat("\x01", 1000)} {
		w := httptest.NewRecorder()
		require.NoError(t, events{&response{ResponseWriter: w}}.sendOutput("2:9", wire.Output{Attempt: 2, Offset: 9, Omitted: 3}, []byte(piece)))

		head, data, _ := strings.Cut(strings.TrimSuffix(w.Body.String(), "\n\n"), "data: ")
		require.Equal(t, "id: 2:9\nevent: output\n", head)
		require.False(t, strings.ContainsAny(data, "\r\n"))
		var out wire.Output
		require.NoError(t, json.Unmarshal([]byte(data), &out))
		require.Equal(t, piece, out.Text+string(out.Base64))
		require.Equal(t, wire.Output{Attempt: 2, Offset: 9, Omitted: 3, Text: out.Text, Base64: out.Base64}, out)
	}
}
