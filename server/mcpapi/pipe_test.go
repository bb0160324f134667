package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/require"
)

// readAll runs a pipe and returns what both sessions read, a message on each line.
func readAll(t *testing.T, p *pipe) []byte {
	t.Helper()
	var said []byte
	go p.run()
	for {
		var m jsonrpc.Message
		select {
		case m = <-p.legacy.in:
		case m = <-p.modern.in:
		case <-p.ended:
			require.ErrorIs(t, p.err, io.EOF)
			return said
		}
		line, err := jsonrpc.EncodeMessage(m)
		require.NoError(t, err)
		said = append(append(said, line...), '\n')
	}
}

func TestPipeReads(t *testing.T) {
	ping := `{"jsonrpc":"2.0","method":"ping"}`
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
		{"an array", "[" + ping + ", " + ping + "]\n" + ping, ping + "\n", []string{"found an array; arrays of messages are not supported"}},
		{"too long", `"` + strings.Repeat("x", maxMessage) + "\"\n" + ping, ping + "\n", []string{"more than 16777216 bytes"}},
		{"too deep", strings.Repeat("[", 8<<20) + "\n" + ping, ping + "\n", []string{"not JSON"}},
		{"deep in params", `{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat(`{"a":`, 1<<20) + "\n" + ping, ping + "\n", []string{"not JSON"}},
		{"arrays of no messages", "[]\n[1]\n[" + ping + ",{}]\n[" + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + "]\n" + ping, ping + "\n", []string{"arrays of messages are not", "arrays of messages are not", "arrays of messages are not", "arrays of messages are not"}},
		{"as long as may be", strings.Repeat(" ", maxMessage-len(ping)-1) + ping + "\n", ping + "\n", nil},
		{"too long to the end", strings.Repeat("x", maxMessage+5), "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			p := newPipe(strings.NewReader(test.in), &out, origin{}, -1)
			p.begun = true
			require.Equal(t, test.want, string(readAll(t, p)))
			answers := strings.SplitAfter(out.String(), "\n")
			require.Len(t, answers, len(test.refused)+1)
			for i, want := range test.refused {
				require.Contains(t, answers[i], want)
				require.NotContains(t, answers[i], `"id"`)
			}
			<-p.ended
		})
	}
}

// A _meta is bounded before the SDK makes a tree of it.
func TestPipeBoundsMeta(t *testing.T) {
	line := func(size int) string {
		meta := `{"x":"` + strings.Repeat("x", size-len(`{"x":""}`)) + `"}`
		return `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":` + meta + "}}\n"
	}
	var out bytes.Buffer
	read := func(in string) string {
		p := newPipe(strings.NewReader(in), &out, origin{}, -1)
		p.begun = true
		return string(readAll(t, p))
	}
	require.Equal(t, line(maxMeta), read(line(maxMeta)))
	require.Empty(t, out.String())
	require.Empty(t, read(line(maxMeta+1)))
	require.Equal(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"params: _meta: has more than 65536 bytes"}}`+"\n", out.String())
}

// A client that does not read is not read: what it sends is not kept.
func TestPipeOfAClientThatDoesNotRead(t *testing.T) {
	const lines = 4 * maxCalls
	for name, test := range map[string]struct {
		first, line string
		want        int // lines that are read
	}{
		"calls":             {"", `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{}}`, maxCalls},
		"pings":             {"", `{"jsonrpc":"2.0","id":%d,"method":"ping"}`, 0},
		"after initialize":  {`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}` + "\n", `{"jsonrpc":"2.0","method":"notifications/%d"}`, 1},
		"no messages":       {"", `%d`, 0},
		"arrays of nothing": {"", `[%d,[]]`, 0},
		"notifications":     {"", `{"jsonrpc":"2.0","method":"notifications/%d"}`, lines},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var in strings.Builder
				in.WriteString(test.first)
				for i := range lines {
					fmt.Fprintf(&in, test.line+"\n", i+1)
				}
				unread, out := io.Pipe()
				p := newPipe(strings.NewReader(in.String()), out, origin{}, -1)
				p.begun = true
				read, ended := 0, make(chan struct{})
				go func() {
					defer close(ended)
					for {
						if _, err := p.legacy.Read(t.Context()); err != nil {
							return
						}
						read++
					}
				}()
				go p.run()
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, test.want, read)
				require.NoError(t, p.Close())
				require.NoError(t, unread.Close())
				<-ended
			})
		})
	}
}

// A call that is answered makes room for the next.
func TestPipeMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in strings.Builder
		for i := range maxCalls + 2 {
			fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call"}`+"\n", i)
		}
		var out bytes.Buffer
		p := newPipe(strings.NewReader(in.String()), &out, origin{}, -1)
		p.begun = true
		go p.run()
		for range maxCalls {
			_, err := p.legacy.Read(t.Context())
			require.NoError(t, err)
		}
		go func() {
			time.Sleep(slotTimeout - time.Second)
			id, err := jsonrpc.MakeID(7.0)
			require.NoError(t, err)
			require.NoError(t, p.legacy.Write(t.Context(), &jsonrpc.Response{ID: id, Result: json.RawMessage("{}")}))
		}()
		m, err := p.legacy.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(maxCalls), m.(*jsonrpc.Request).ID.Raw())
		_, err = p.legacy.Read(t.Context())
		require.ErrorIs(t, err, io.EOF)
		require.Contains(t, out.String(), fmt.Sprintf(`"id":%d,"error":{"code":429`, maxCalls+1))
	})
}

// When the input has ended, open requests are waited for, however slow the machine is; but
// not for ever, and not once the process is to end: then nothing more is written.
func TestPipeDrains(t *testing.T) {
	for name, test := range map[string]struct {
		method   string
		answered time.Duration // 0: never
		stopped  time.Duration // 0: never
		ended    time.Duration
	}{
		"a call":                {methodCall, drainTimeout / 2, 0, drainTimeout / 2},
		"a long call":           {methodCall, 0, 0, drainTimeout},
		"a list":                {"tools/list", drainTimeout / 2, 0, drainTimeout / 2},
		"a list nobody answers": {"tools/list", 0, 0, drainTimeout},
		"a subscription":        {methodListen, 0, 0, 0},
		"a call and a stop":     {methodCall, 3 * time.Second, 2 * time.Second, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				p := newPipe(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+test.method+`","params":{}}`), &out, origin{}, drainTimeout)
				p.begun = true
				if test.stopped > 0 {
					ctx, cancel := context.WithTimeout(t.Context(), test.stopped)
					defer cancel()
					p.stop = ctx.Done()
				}
				began := time.Now()
				go p.run()
				m, err := p.legacy.Read(t.Context())
				require.NoError(t, err)

				ended := make(chan time.Duration, 1)
				go func() {
					<-p.ended
					ended <- time.Since(began)
				}()
				if test.answered > 0 {
					time.Sleep(test.answered)
					err := p.legacy.Write(t.Context(), &jsonrpc.Response{ID: m.(*jsonrpc.Request).ID, Result: json.RawMessage("{}")})
					if test.stopped > 0 {
						require.ErrorIs(t, err, io.ErrClosedPipe)
					} else {
						require.NoError(t, err)
					}
					require.Equal(t, test.stopped == 0, out.Len() > 0)
				}
				require.Equal(t, test.ended, <-ended)
			})
		})
	}
}

// outFunc is a client that takes what is written.
type outFunc func(line []byte)

func (f outFunc) Write(line []byte) (int, error) {
	f(line)
	return len(line), nil
}

// A client that uses an id again as soon as it has the answer is ahead of the write
// that brought it, and makes another call.
func TestPipeTakesAnIDAgain(t *testing.T) {
	list := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	id := toID(json.RawMessage("1"))
	var p *pipe
	ask := func() {
		m, message, problem := p.read(list)
		require.Nil(t, problem)
		require.True(t, p.acquire())
		p.open(message.(*jsonrpc.Request).ID, m, &receipt{})
	}
	took := 0
	p = newPipe(strings.NewReader(""), outFunc(func([]byte) {
		if took++; took == 1 {
			ask() // before the write has returned
		}
	}), origin{}, -1)
	p.begun = true

	ask()
	_, _, problem := p.read(list)
	require.NotNil(t, problem, "it has no answer yet")
	for open := range 2 {
		require.NoError(t, p.legacy.Write(t.Context(), &jsonrpc.Response{ID: id, Result: json.RawMessage("{}")}))
		require.Len(t, p.unanswered(), 1-open, "the second call is not forgotten with the first")
		require.Len(t, p.slots, 1-open)
	}
	require.Equal(t, 2, took)
}

// FuzzPipe checks that whatever a client sends, the SDK reads only lines of
// JSON and the client is answered in nothing else.
func FuzzPipe(f *testing.F) {
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nx\n[1]\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}"))
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":[]}\n\r\n\x00\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		p := newPipe(iotest.OneByteReader(bytes.NewReader(in)), &out, origin{}, -1)
		p.begun = true
		got := readAll(t, p)
		for _, said := range [][]byte{got, out.Bytes()} {
			for line := range bytes.Lines(said) {
				require.True(t, bytes.HasSuffix(line, []byte("\n")))
				require.True(t, json.Valid(line), "%q", line)
			}
		}
	})
}
