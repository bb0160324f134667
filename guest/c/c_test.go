package c

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// FuzzJSON reads and writes JSON with the header, compiled natively with checks of memory
// and undefined behavior, and compares with jsontext.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		``, ` `, `null`, ` true `, `false`, `tru`, `nulll`, `"`, `"a`, `"a"b`, `"\`, `"\u`, `"\u12`, `"\u123g"`, `"\x"`, "\"\x00\"", "\"\n\"", `"\u0000"`,
		`"\u00e9\u20ac\uD83D\ude00"`, `"\ud800"`, `"\udc00"`, `"\ud800x"`, `"\ud800\u0041"`, `"\ud800\ud800"`, `"\ud83d\ud`, "\"é€😀\"", "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xe2\x82\"", "\"\xe0\x9f\xbf\"", "\"\xf4\x90\x80\x80\"", "\"\xf0\x80\x80\x80\"",
		`0`, `-0`, `-`, `+1`, `01`, `-01`, `1.`, `.5`, `1e`, `1e+`, `1e5`, `1E-5`, `1.5e+21`, `1e999`, `-1e999`, `1e-999`, `0.1`, `123456789012345`, `1234567890123456`, `9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `-9223372036854775809`, `5e-324`, `1.7976931348623157e308`, `0.30000000000000004`, `1.0`, `1e3`, `1e18`, `1e19`, `12345678.5`, `NaN`, `Infinity`, `0x10`,
		`[]`, `[ ]`, `[1]`, `[1,]`, `[,1]`, `[1 2]`, `[1,2`, `[1}`, `]`, `{}`, `{ }`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{"a":1]`, `{"a":1 "b":2}`, `{"a":1,"a":2}`, `{"\u0061":1,"b":[{"":[]}]}`, `{"a\u0000b":1}`, `{"a" : 1 , "b" : [ ] }`, `1 2`, `{}{}`, "\ufeff{}", `[1]x`,
		strings.Repeat("[", 1024) + strings.Repeat("]", 1024), strings.Repeat("[", 1025) + strings.Repeat("]", 1025), strings.Repeat(`{"a":[`, 512) + strings.Repeat("]}", 512), strings.Repeat("[", 5000), strings.Repeat("[[],", 600) + "1" + strings.Repeat("]", 600),
		`"` + strings.Repeat("é\n", 3), strings.Repeat(" ", 500) + `{"a":"` + strings.Repeat("b", 5000) + `"}`,
	} {
		f.Add([]byte(text))
	}

	header := start(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		got := header.rewrite(t, text)
		want, err := rewrite(text)
		if err != nil {
			require.Empty(t, got, "invalid (%v), but read: %q", err, text)
			return
		}
		require.NotEmpty(t, got, "valid, but refused: %q", text)
		var found any
		require.NoError(t, json.Unmarshal(got, &found))
		data, err := json.Marshal(want)
		require.NoError(t, err)
		var expected any
		require.NoError(t, json.Unmarshal(data, &expected))
		require.Equal(t, expected, found, "%q", text)
	})
}

// A process is testdata/json.c.
type process struct {
	in  io.WriteCloser
	out io.Reader
}

func start(f *testing.F) process {
	cc, err := exec.LookPath("cc")
	if err != nil {
		f.Skip("there is no C compiler (cc)")
	}
	program := filepath.Join(f.TempDir(), "json")
	out, err := exec.Command(cc, "-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", program, "testdata/json.c").CombinedOutput()
	if err != nil && (bytes.Contains(out, []byte("asan")) || bytes.Contains(out, []byte("sanitize"))) {
		f.Skipf("the C compiler cannot check memory: %s", out)
	}
	require.NoError(f, err, "%s", out)

	cmd := exec.Command(program)
	var p process
	p.in, err = cmd.StdinPipe()
	require.NoError(f, err)
	p.out, err = cmd.StdoutPipe()
	require.NoError(f, err)
	cmd.Stderr = os.Stderr                                        // what the checks have found
	cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0") // also in containers, where leaks cannot be looked for
	require.NoError(f, cmd.Start())
	f.Cleanup(func() {
		require.NoError(f, p.in.Close())
		require.NoError(f, cmd.Wait())
	})
	return p
}

func (p process) rewrite(t *testing.T, text []byte) []byte {
	_, err := p.in.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...))
	require.NoError(t, err, "%q", text)
	n := make([]byte, 4)
	_, err = io.ReadFull(p.out, n)
	require.NoError(t, err, "%q", text)
	answer := make([]byte, binary.LittleEndian.Uint32(n))
	_, err = io.ReadFull(p.out, answer)
	require.NoError(t, err, "%q", text)
	return answer
}

// rewrite returns what testdata/json.c should write: an object as the list of its keys and
// values, a number as a pair of a double and an integer, each null if the number is none, and null
// for what is nested more than 15 deep.
func rewrite(text []byte) (any, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true))
	v, err := value(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

func value(dec *jsontext.Decoder) (v any, err error) {
	t, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	if dec.StackDepth() > 1024 {
		return nil, errors.New("nested too deeply")
	}
	depth := dec.StackDepth()
	switch t.Kind() {
	case '{', '[':
		list := []any{}
		for dec.PeekKind() != '}' && dec.PeekKind() != ']' {
			e, err := value(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, e)
			if s, key := e.(string); key && t.Kind() == '{' {
				if e, err = value(dec); err != nil {
					return nil, err
				}
				list[len(list)-1] = s
				list = append(list, e)
			}
		}
		if _, err := dec.ReadToken(); err != nil {
			return nil, err
		}
		v, depth = list, depth-1
	case '0':
		v = number(t.String())
	case '"':
		v = t.String()
	case 't', 'f':
		v = t.Bool()
	}
	if depth >= 15 && !isKey(dec) {
		return nil, nil
	}
	return v, nil
}

// isKey reports whether the string that was read is the name of a member.
func isKey(dec *jsontext.Decoder) bool {
	kind, n := dec.StackIndex(dec.StackDepth())
	return kind == '{' && n%2 == 1
}

func number(text string) []any {
	n := []any{nil, nil}
	d, _ := strconv.ParseFloat(text, 64)
	if !math.IsInf(d, 0) {
		n[0] = d
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		n[1] = i
	} else if strings.ContainsAny(text, ".eE") && d == math.Trunc(d) && d >= math.MinInt64 && d < math.MaxInt64 {
		n[1] = int64(d)
	}
	return n
}
