// Package answer keeps the output of a guest: the result, the content and the reports of one call.
package answer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/human"
)

// ErrOutput means that a guest wrote more than its limit allows.
var ErrOutput = errors.New("output limit reached")

// Answer is the output of a guest.
type Answer struct {
	Limit      int64 // maximum size of all streams together, in bytes
	Describing bool  // whether the guest is writing its manifest, which is then most of the output
	Written    int64
	Logged     int64 // bytes written to the operator's log

	Result, Error, Manifest []byte
	Given                   bool // whether the guest wrote a result, perhaps an empty one
	Content                 []abi.Block
	Summary                 string
	Stderr                  tail // the beginning and the end of stderr
}

const (
	MaxBlocks = 256      // maximum number of content blocks in one result
	maxTail   = 2048     // bytes of a tool's stderr that an error text quotes
	maxHead   = 512      // how many of these bytes come from its beginning
	maxWords  = 1536     // bytes of a crashed plugin's stderr that are kept: as many as the record of a run holds
	MaxLogged = 64 << 10 // maximum number of bytes that one call may write to the operator's log
)

// Count counts n bytes of output. Its error matches ErrOutput and ends the call.
func (a *Answer) Count(n int) error {
	if a.Written+int64(n) > a.Limit {
		if a.Describing {
			return fmt.Errorf("%w: the manifest is larger than the %d bytes allowed: it counts all schemas, descriptions and examples", ErrOutput, a.Limit)
		}
		return fmt.Errorf("%w: the plugin wrote more than the %d bytes allowed", ErrOutput, a.Limit)
	}
	a.Written += int64(n)
	return nil
}

// Buffer returns the buffer that keeps a stream until the call ends. It returns nil for a
// stream that is not kept.
func (a *Answer) Buffer(stream abi.Stream) *[]byte {
	switch stream {
	case abi.StreamResult:
		return &a.Result
	case abi.StreamError:
		return &a.Error
	case abi.StreamManifest:
		return &a.Manifest
	}
	return nil
}

// Add keeps a content block. The error says what is wrong with the block.
func (a *Answer) Add(data []byte) error {
	if len(a.Content) == MaxBlocks {
		return fmt.Errorf("a result has at most %d content blocks", MaxBlocks)
	}
	block, err := abi.DecodeBlock(data)
	if err != nil {
		return err
	}
	a.Content = append(a.Content, block)
	return nil
}

// tail keeps the first and the last bytes written to it, and the last crash report. It
// shortens dumps of Go's runtime.
type tail struct {
	dump   dump
	head   []byte // first bytes, once buf no longer holds them
	buf    []byte
	report []byte
}

// Write keeps p, and returns what to show of it.
func (t *tail) Write(p []byte) []byte {
	return t.keep(t.dump.shorten(p))
}

// End returns what to show at the end of the stream.
func (t *tail) End() []byte { return t.keep(t.dump.end()) }

func (t *tail) keep(shown []byte) []byte {
	p := shown
	for len(p) > 0 {
		n := min(len(p), maxTail)
		t.buf = append(t.buf, p[:n]...)
		p = p[n:]

		if len(t.buf) > 2*maxTail {
			if report := crashReport(t.buf); report != nil {
				t.report = append(t.report[:0], report[:min(len(report), maxTail/4)]...)
			}
			if t.head == nil {
				t.head = bytes.Clone(t.buf[:maxHead])
			}
			t.buf = append(t.buf[:0], t.buf[len(t.buf)-maxTail:]...)
		}
	}
	return shown
}

// Restore sets the tail to p, to continue from there.
func (t *tail) Restore(p []byte) { t.buf = p }

// Bytes returns at most 2 KiB of what was written: see [Ends].
func (t *tail) Bytes() []byte {
	if t.head != nil {
		return ends(t.head, t.buf)
	}
	return Ends(t.buf)
}

// crashReport returns the part of a text that begins with the last crash report, or nil.
// The stacks after it may be long.
func crashReport(text []byte) []byte {
	for _, start := range []string{"panic: ", "fatal error: ", "thread '"} { // Go, Go's runtime, Rust
		if bytes.HasPrefix(text, []byte(start)) && !bytes.Contains(text, []byte("\n"+start)) {
			return text
		}
		if at := bytes.LastIndex(text, []byte("\n"+start)); at >= 0 {
			return text[at+1:]
		}
	}
	return nil
}

// Ends returns at most 2 KiB of a text: its first lines, which often name the error, and
// its last ones.
func Ends(text []byte) []byte {
	if len(text) <= maxTail {
		return text
	}
	return ends(text[:maxHead], text)
}

// ends joins the lines of head and the last lines of text.
func ends(head, text []byte) []byte {
	text = text[len(text)-(maxTail-maxHead-len("\n…\n")):]
	if at := bytes.IndexByte(text, '\n'); at >= 0 && at < maxHead { // begins with a whole line
		text = text[at+1:]
	}
	if at := bytes.LastIndexByte(head, '\n'); at > 0 {
		head = head[:at]
	}
	return bytes.Join([][]byte{trimRunes(head), []byte("…"), trimRunes(text)}, []byte("\n"))
}

// trimRunes removes incomplete characters from both ends of a text.
func trimRunes(text []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && len(text) > 0 && !utf8.RuneStart(text[0]); i++ {
		text = text[1:]
	}
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if last := text[len(text)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				text = text[:len(text)-i]
			}
			break
		}
	}
	return text
}

// LastWords returns at most maxWords bytes of the tail on one line, without
// invisible characters. It begins with the crash report, if there is one.
func (t *tail) LastWords() string {
	text := string(trimRunes(t.buf[max(0, len(t.buf)-maxWords):]))
	if report := crashReport(t.buf); report != nil {
		text = string(report)
	} else if t.report != nil {
		text = string(t.report) + "\n…\n" + text[max(0, len(text)-maxTail/4):]
	}

	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(strings.ReplaceAll(lines[i], "\t", " "))
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	return Clip(string(human.Visible([]byte(strings.Join(lines, " | ")))), maxWords)
}
