package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestNoResult: a reactor that forgets its result is told apart from one that has none.
func TestNoResult(t *testing.T) {
	text := func(s abi.Stream, size int) code { return drop(write(s, dataAt, int64(size))) }
	block := `{"type":"text","text":"x"}`
	for name, c := range map[string]struct {
		guest guest
		kind  abi.Kind
		value string
	}{
		"nothing at all":     {guest{silent: true, invoke: i32(0)}, abi.Internal, ""},
		"output only":        {guest{silent: true, data: "12", invoke: seq(text(abi.StreamOutput, 2), i32(0))}, abi.Internal, ""},
		"a refused block":    {guest{silent: true, data: "12", invoke: seq(text(abi.StreamContent, 2), i32(0))}, abi.Internal, ""},
		"an empty result":    {guest{silent: true, invoke: seq(nothing, i32(0))}, abi.Success, ""},
		"a result":           {guest{silent: true, data: "12", invoke: seq(text(abi.StreamResult, 2), i32(0))}, abi.Success, "12"},
		"content":            {guest{silent: true, data: block, invoke: seq(text(abi.StreamContent, len(block)), i32(0))}, abi.Success, ""},
		"an error":           {guest{silent: true, invoke: i32(1)}, abi.ToolError, ""},
		"a command may":      {guest{command: code{}}, abi.Success, `""`},
		"an empty one first": {guest{silent: true, data: "12", invoke: seq(nothing, text(abi.StreamResult, 2), i32(0))}, abi.Success, "12"},
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, c.guest, host.Call{})
			require.Equal(t, c.kind, o.Kind, o.err)
			require.Equal(t, c.value, string(o.Value))
			if c.kind == abi.Internal {
				require.ErrorIs(t, o.err, host.ErrABI)
				require.ErrorContains(t, o.err, "toolhost_invoke returned 0, but the plugin wrote neither a result nor content: write the result to stream 0, or an empty one if the tool has none")
			}
		})
	}
}

func TestResultThatIsNotUTF8(t *testing.T) {
	o := run(t, guest{data: "\"a\xffb\"", invoke: seq(drop(write(abi.StreamResult, dataAt, 5)), i32(0))}, host.Call{})
	require.ErrorContains(t, o.err, "the result is not JSON in UTF-8: byte 2 of 5 is not UTF-8")
	o = run(t, guest{data: "{]", invoke: seq(drop(write(abi.StreamResult, dataAt, 2)), i32(0))}, host.Call{})
	require.EqualError(t, o.err, "guest_tool: the plugin breaks the contract: the result is not JSON in UTF-8")
}

// TestProgramOutput: the output of a program is what its manifest says, to the byte.
func TestProgramOutput(t *testing.T) {
	h := newHost(t, nil)
	m := commandPlugin.module(t, h)
	png, failed := "\x89PNG\r\n\x1a\n\x00\xff", func(text string) abi.Result { return abi.Result{Kind: abi.ToolError, Error: text} }
	value := func(v string) abi.Result { return abi.Result{Kind: abi.Success, Value: []byte(v)} }
	picture := func(media, data string) abi.Result {
		return abi.Result{Kind: abi.Success, Content: []abi.Block{{Type: "image", MIMEType: media, Data: []byte(data)}}}
	}
	for name, c := range map[string]struct {
		output abi.Output
		stdout string
		want   abi.Result
	}{
		"auto, text":              {"", "a\n\n", value(`"a"`)},
		"auto, JSON":              {abi.OutputAuto, "[1, 2]\n", value(`[1,2]`)},
		"auto, bytes":             {"", "caf\xe9\n", failed("the output is not text: byte 3 of 5 is not UTF-8")},
		"auto, a picture":         {"", png, failed("the output is not text: byte 0 of 10 is not UTF-8")},
		"auto, half a character":  {"", "a\xc3", failed("the output is not text: byte 1 of 2 is not UTF-8")},
		"text to the byte":        {abi.OutputText, " {\"a\": 1}\r\n\n", value(`" {\"a\": 1}\r\n\n"`)},
		"text, empty":             {abi.OutputText, "", value(`""`)},
		"text, bytes":             {abi.OutputText, "\xff", failed("the output is not text: byte 0 of 1 is not UTF-8")},
		"text, U+FFFD of its own": {abi.OutputText, "\ufffd", value("\"\ufffd\"")},
		"text, a zero and colour": {abi.OutputText, "\x00\x1b[1m", value(`"\u0000\u001b[1m"`)},
		"JSON":                    {abi.OutputJSON, " {\"a\": 1}\n", value(`{"a":1}`)},
		"JSON, text":              {abi.OutputJSON, "hello\n", failed("the output is not JSON: invalid character 'h' looking for beginning of value")},
		"JSON, empty":             {abi.OutputJSON, "", failed("the output is not JSON: unexpected end of JSON input")},
		"JSON, two values":        {abi.OutputJSON, "1\n2\n", failed("the output is not JSON: invalid character '2' after top-level value")},
		"JSON, bytes":             {abi.OutputJSON, "\"\xff\"", failed("the output is not text: byte 1 of 3 is not UTF-8")},
		"lines":                   {abi.OutputLines, "a\n\nb\r\n", value(`["a","","b\r"]`)},
		"lines without an end":    {abi.OutputLines, "a\nb", value(`["a","b"]`)},
		"lines, JSON":             {abi.OutputLines, "1\n", value(`["1"]`)},
		"lines, none":             {abi.OutputLines, "", value(`[]`)},
		"lines, an empty one":     {abi.OutputLines, "\n", value(`[""]`)},
		"lines, bytes":            {abi.OutputLines, "a\n\xff\n", failed("the output is not text: byte 2 of 4 is not UTF-8")},
		"base64":                  {abi.OutputBase64, png, value(`"iVBORw0KGgoA/w=="`)},
		"base64, empty":           {abi.OutputBase64, "", value(`""`)},
		"base64, JSON":            {abi.OutputBase64, "1", value(`"MQ=="`)},
		"a picture":               {"image/png", png, picture("image/png", png)},
		"a picture, another type": {"image/jpeg", png, failed(`the output is not image/jpeg: it begins with the bytes "\x89PNG\r\n\x1a\n"`)},
		"a picture, a text":       {"image/png", "<script>alert(1)</script>", failed(`the output is not image/png: it begins with the bytes "<script>"`)},
		"a picture, nothing":      {"image/webp", "", failed(`the output is not image/webp: it begins with the bytes ""`)},
	} {
		t.Run(name, func(t *testing.T) {
			args, err := json.Marshal(map[string][]byte{"bytes": []byte(c.stdout)})
			require.NoError(t, err)
			o := do(context.Background(), h, m, host.Call{Tool: "bytes", Args: args, Traits: host.Traits{Command: abi.Command{Output: c.output}}})
			require.NoError(t, o.err)
			require.Equal(t, c.stdout, o.stdout)
			o.Usage = abi.Usage{}
			require.Equal(t, c.want, o.Result)
		})
	}
}

// TestFailedProgram: the operator can read all that a failed program wrote, in one record of
// the log that the program cannot forge. The model reads the beginning and the end.
func TestFailedProgram(t *testing.T) {
	out := strings.Repeat("line\n", 1000) + "\nlevel=ERROR msg=forged\n"
	failing := guest{data: out, command: seq(store(16, i32(dataAt)), store(20, i32(int64(len(out)))), drop(wasi(fnFDWrite, 1, 16, 1, 24)),
		drop(write(abi.StreamStderr, dataAt, int64(len(out)))), i32(4), call(fnExit))}
	failing.change = func(m *wasmbin.Module) { m.Memories[0].Min = 2 }

	for level, want := range map[slog.Level]int{slog.LevelWarn: 0, slog.LevelInfo: 1} {
		var log bytes.Buffer
		h := newHost(t, slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: level})))
		m := compile(t, h, failing.wasm())
		o := do(context.Background(), h, m, host.Call{ID: "c1"})
		require.NoError(t, o.err)
		require.Regexp(t, `(?s)^exited with code 4: line\n(line\n)+…\n(line\n)+\nlevel=ERROR msg=forged$`, o.Error)
		require.LessOrEqual(t, len(o.Error), 2048+len("exited with code 4: "))
		require.Equal(t, want, bytes.Count(log.Bytes(), []byte("\n")))
		if want == 0 {
			continue
		}
		var record map[string]any
		require.NoError(t, json.Unmarshal(log.Bytes(), &record))
		delete(record, "time")
		require.Equal(t, map[string]any{"level": "INFO", "msg": "the program failed", "error": "exited with code 4", "stdout": out, "stderr": out,
			"plugin": "guest", "tool": "tool", "call": "c1", "session": ""}, record)

		log.Reset()
		do(context.Background(), h, m, host.Call{Traits: host.Traits{Command: abi.Command{Success: []int64{4}}}})
		require.Empty(t, log.String(), "a success is not logged")
		o = do(context.Background(), h, m, host.Call{Secret: true})
		require.Equal(t, abi.ToolError, o.Kind)
		require.Empty(t, log.String(), "the output may have the secret")
	}
}

// TestDumpOfRuntime: models, people and the last words have what a dump of Go's runtime says
// of the plugin. The operator's log has all that a program wrote.
func TestDumpOfRuntime(t *testing.T) {
	const (
		dump  = "fatal error: out of memory\n\ngoroutine 1 [running]:\nruntime.throw()\n\tpanic.go:1\nmain.grow()\n\tmain.go:5\n"
		shown = "fatal error: out of memory\n\ngoroutine 1 [running]:\nmain.grow()\n\tmain.go:5\n[2 lines about Go's runtime are left out]"
	)
	said := drop(write(abi.StreamStderr, dataAt, int64(len(dump))))

	var log bytes.Buffer
	h := newHost(t, slog.New(slog.NewJSONHandler(&log, nil)))
	o := do(context.Background(), h, compile(t, h, guest{data: dump, command: seq(said, i32(2), call(fnExit))}.wasm()), host.Call{})
	require.NoError(t, o.err)
	require.Equal(t, "exited with code 2: "+shown, o.Error)
	require.Equal(t, shown+"\n", o.stderr)
	var record struct{ Stderr string }
	require.NoError(t, json.Unmarshal(log.Bytes(), &record))
	require.Equal(t, dump, record.Stderr)

	o = run(t, guest{data: dump, invoke: seq(said, unreachable())}, host.Call{})
	require.ErrorContains(t, o.err, "; its last words: fatal error: out of memory | goroutine 1 [running]: | main.grow() | main.go:5 | [2 lines about Go's runtime are left out]")
	require.Equal(t, shown+"\n", o.stderr)
}

func TestLargeManifest(t *testing.T) {
	large := guest{describe: says(forever(drop(write(abi.StreamManifest, 0, page))))}
	large.change = func(m *wasmbin.Module) { m.Memories[0].Min = 1 }
	_, err := newHost(t, nil).Describe(context.Background(), large.wasm())
	require.ErrorIs(t, err, host.ErrOutput)
	require.EqualError(t, err, "toolhost_describe: output limit reached: the manifest is larger than the 1048576 bytes allowed: it counts all schemas, descriptions and examples")
}
