package wasmbin

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// counted counts what is read of a file.
type counted struct {
	io.ReaderAt
	bytes int
}

func (c *counted) ReadAt(b []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(b, off)
	c.bytes += n
	return n, err
}

func scan(wasm []byte, customs ...string) (*Module, error) {
	return Scan(bytes.NewReader(wasm), int64(len(wasm)), customs...)
}

// scanned is what Scan leaves of what Parse found.
func scanned(m *Module, customs ...string) *Module {
	left := *m
	left.Elements, left.Codes, left.Data, left.Customs = nil, nil, nil, nil
	for _, c := range m.Customs {
		if slices.Contains(customs, c.Name) {
			left.Customs = append(left.Customs, c)
		}
	}
	return &left
}

// TestScan: Scan finds what Parse finds, but for the bulk, and reads only a
// small part of the file for it.
func TestScan(t *testing.T) {
	m := everything()
	bulk := make([]byte, 1<<20)
	m.Codes[0].Body = append(bytes.Repeat([]byte{byte(OpNop)}, len(bulk)), byte(OpEnd))
	m.Data[0].Init = bulk
	m.Customs = append(m.Customs, NewCustom("name", bulk), NewCustom("wanted", []byte("x")))
	wasm := m.Encode()
	parsed, err := Parse(wasm)

	require.NoError(t, err)
	for _, customs := range [][]string{nil, {"wanted"}, {"toolhost.manifest", "wanted"}, {"absent"}} {
		file := &counted{ReaderAt: bytes.NewReader(wasm)}
		got, err := Scan(file, int64(len(wasm)), customs...)
		require.NoError(t, err)
		require.Equal(t, scanned(parsed, customs...), got)
		require.Less(t, file.bytes, 6*windowSize)
	}

	got, err := scan(wasm, "name")
	require.NoError(t, err)
	require.Equal(t, bulk, got.Customs[0].Data, "one that is larger than the window")
}

// TestScanRefuses: what a file claims of itself is checked against its size.
func TestScanRefuses(t *testing.T) {
	long := AppendCustom(withBody(0x0b), "toolhost.manifest", bytes.Repeat([]byte("x"), 3*windowSize))
	for name, test := range map[string]struct {
		wasm []byte
		err  error
		say  string
	}{
		"empty":                     {nil, ErrMalformed, "empty"},
		"text":                      {[]byte("#!/bin/sh\n"), ErrMalformed, "text"},
		"component":                 {[]byte("\x00asm\x0d\x00\x01\x00"), ErrUnsupported, "core modules"},
		"cut in code":               {long[:len(withBody(0x0b))-1], ErrTruncated, "cut off"},
		"cut in a section unread":   {AppendCustom(long, "other", make([]byte, 300))[:len(long)+20], ErrTruncated, "cut off"},
		"cut in a section read":     {long[:len(long)-1], ErrTruncated, "cut off"},
		"cut in a length":           {binary([]byte{secCode, 0x80}), ErrTruncated, "cut off"},
		"section of 4 GiB":          {binary([]byte{secData, 0xff, 0xff, 0xff, 0xff, 0x0f}), ErrTruncated, "cut off"},
		"custom name of 4 GiB":      {binary(section(secCustom, 0xff, 0xff, 0xff, 0xff, 0x0f)), ErrMalformed, "custom section name"},
		"custom without a name":     {binary(section(secCustom)), ErrTruncated, "custom section name"},
		"code twice":                {binary(section(secCode, 0), section(secCode, 0)), ErrMalformed, "out of order or repeated"},
		"data before code":          {binary(section(secData, 0), section(secCode, 0)), ErrMalformed, "out of order or repeated"},
		"bodies without functions":  {binary(section(secCode, 9)), ErrMalformed, "differ"},
		"functions without bodies":  {binary(voidType, section(secFunction, 1, 0)), ErrMalformed, "differ"},
		"data differs from count":   {binary(section(secDataCount, 2), section(secData, 1, 1, 0)), ErrMalformed, "data count"},
		"export of nothing":         {binary(section(secExport, 1, 1, 'x', 0, 7)), ErrMalformed, "does not exist"},
		"more than the content":     {binary(section(secType, 0, 0)), ErrMalformed, "1 bytes more"},
		"ten thousand and one":      {binary(bytes.Repeat(section(secCustom, 0), maxCustoms+1)), ErrUnsupported, "custom sections"},
		"a million and one entries": {binary(append(AppendU32([]byte{secMemory}, 3+2*(maxEntries+1)), append(AppendU32(nil, maxEntries+1), make([]byte, 2*(maxEntries+1))...)...)), ErrUnsupported, "entries"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := scan(test.wasm, "toolhost.manifest")
			require.ErrorIs(t, err, test.err)
			require.ErrorContains(t, err, test.say)
			_, err = Parse(test.wasm)
			require.ErrorIs(t, err, test.err, "and Parse agrees")
		})
	}

	_, err := Scan(bytes.NewReader(long), 1<<40)
	require.ErrorIs(t, err, ErrUnsupported)
}

type broken struct{ err error }

func (b broken) ReadAt([]byte, int64) (int, error) { return 0, b.err }

// TestScanFileFails: an error of the file is no error of the module, and a file
// that is shorter than it was is one that was cut off.
func TestScanFileFails(t *testing.T) {
	gone := errors.New("the disk is gone")
	_, err := Scan(broken{gone}, 100)
	require.ErrorIs(t, err, gone)
	_, err = Scan(bytes.NewReader(everything().Encode()), 1<<20)
	require.ErrorIs(t, err, ErrTruncated)
}

// TestSections: each section comes as it stands there, with the names of custom ones.
func TestSections(t *testing.T) {
	wasm := AppendCustom(everything().Encode(), "last", []byte("data"))
	var names []string
	for name := range Sections(wasm) {
		if name != "" {
			names = append(names, name)
		}
	}
	require.Equal(t, []string{"first", "toolhost.manifest", "last"}, names)
	require.Equal(t, wasm, joined(wasm))
}

// joined is what Sections yields in one piece.
func joined(wasm []byte) []byte {
	all := []byte{}
	for _, section := range Sections(wasm) {
		all = append(all, section...)
	}
	return all
}

// FuzzScan: Scan accepts what Parse accepts and finds the same there. Where
// they differ, it is about the parts that Scan does not read.
func FuzzScan(f *testing.F) {
	f.Add(everything().Encode())
	f.Add(withBody(0x02, 0x40, 0x0c, 0, 0x0b, 0x0b))
	f.Add(binary(section(secCustom, 1, 'x'), section(secCustom, 1, 'y', 1)))
	f.Add(binary(section(secType, 0xff, 0xff, 0xff, 0xff, 0x0f)))
	f.Fuzz(func(t *testing.T, wasm []byte) {
		customs := []string{"x", "toolhost.manifest"}
		require.Equal(t, wasm, joined(wasm))
		m, err := Parse(wasm)
		got, serr := scan(wasm, customs...)
		if err == nil {
			require.NoError(t, serr)
			require.Equal(t, scanned(m, customs...), got)
			return
		}

		var at *Error
		require.ErrorAs(t, err, &at)
		if serr == nil {
			require.Contains(t, []string{"custom", "element", "code", "data"}, at.Section)
		}
	})
}
