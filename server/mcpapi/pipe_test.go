package mcpapi

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestPipeReads(t *testing.T) {
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, test := range []struct {
		name, in string
		want     string // what the SDK reads
		refused  []string
	}{
		{"lines", ping + "\n" + ping + "\r\n\n  \n" + ping + "\n", strings.Repeat(ping+"\n", 3), nil},
		{"last without a line feed", ping + "\n" + ping, strings.Repeat(ping+"\n", 2), nil},
		{"cut off", ping + "\n" + ping[:10], ping + "\n", []string{"not JSON"}},
		{"not UTF-8", `{"jsonrpc":"2.0","id":1,"method":"` + "\xff" + `"}` + "\n" + ping, ping + "\n", []string{"not JSON in UTF-8"}},
		{"two on a line", ping + ping + "\n" + ping, ping + "\n", []string{"not JSON"}},
		{"no messages", "5\n\"x\"\nnull\n{}\n" + ping, ping + "\n", []string{"not a JSON-RPC", "not a JSON-RPC", "not a JSON-RPC", "not a JSON-RPC"}},
		{"an array", "[" + ping + "]\n", "[" + ping + "]\n", nil},
		{"too long", `"` + strings.Repeat("x", maxLine) + "\"\n" + ping, ping + "\n", []string{"more than 16777216 bytes"}},
		{"as long as may be", strings.Repeat(" ", maxLine-len(ping)-1) + ping + "\n", ping + "\n", nil},
		{"too long to the end", strings.Repeat("x", maxLine+5), "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			p := newPipe(strings.NewReader(test.in), &out, -1)
			got, err := io.ReadAll(p)
			require.NoError(t, err)
			require.Equal(t, test.want, string(got))
			answers := strings.SplitAfter(out.String(), "\n")
			require.Len(t, answers, len(test.refused)+1)
			for i, want := range test.refused {
				require.Contains(t, answers[i], want)
				require.Contains(t, answers[i], `"id":null`)
			}
			<-p.ended
		})
	}
}

// FuzzPipe checks that whatever a client sends, the SDK reads only lines of
// JSON and the client is answered in nothing else.
func FuzzPipe(f *testing.F) {
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nx\n[1]\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}"))
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":[]}\n\r\n\x00\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		got, err := io.ReadAll(newPipe(iotest.OneByteReader(bytes.NewReader(in)), &out, -1))
		require.NoError(t, err)
		for _, said := range [][]byte{got, out.Bytes()} {
			for line := range bytes.Lines(said) {
				require.True(t, bytes.HasSuffix(line, []byte("\n")))
				require.True(t, json.Valid(line), "%q", line)
			}
		}
	})
}
