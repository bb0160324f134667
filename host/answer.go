package host

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/human"
)

// answer is the output of a guest.
type answer struct {
	limit      int64 // bytes of all streams together
	describing bool  // the output is mostly the manifest
	written    int64
	logged     int64 // bytes for the operator's log

	result, errText, manifest []byte
	given                     bool // the guest wrote a result, perhaps an empty one
	content                   []abi.Block
	summary                   string
	stderr                    tail // the end of stderr
}

const (
	maxBlocks = 256      // content blocks of one result
	maxTail   = 2048     // bytes of a tool's stderr that an error text quotes
	maxWords  = 1536     // bytes of stderr of a crashed plugin, as many as the record of a run takes
	maxLogged = 64 << 10 // bytes that one call may write to the operator's log
)

// count counts n bytes of output. Its error matches ErrOutput and ends the call.
func (a *answer) count(n int) error {
	if a.written+int64(n) > a.limit {
		if a.describing {
			return fmt.Errorf("%w: the manifest is larger than the %d bytes allowed: it counts all schemas, descriptions and examples", ErrOutput, a.limit)
		}
		return fmt.Errorf("%w: the plugin wrote more than the %d bytes allowed", ErrOutput, a.limit)
	}
	a.written += int64(n)
	return nil
}

// buffer returns the buffer that keeps a stream until the call ends; nil for a
// stream that is not kept.
func (a *answer) buffer(stream abi.Stream) *[]byte {
	switch stream {
	case abi.StreamResult:
		return &a.result
	case abi.StreamError:
		return &a.errText
	case abi.StreamManifest:
		return &a.manifest
	}
	return nil
}

// add keeps a content block. Its error says what is wrong with the block.
func (a *answer) add(data []byte) error {
	if len(a.content) == maxBlocks {
		return fmt.Errorf("a result has at most %d content blocks", maxBlocks)
	}
	block, err := abi.DecodeBlock(data)
	if err != nil {
		return err
	}
	a.content = append(a.content, block)
	return nil
}

// tail keeps the last bytes written to it, and the last report of a crash.
type tail struct{ buf, report []byte }

func (t *tail) write(p []byte) {
	for len(p) > 0 {
		n := min(len(p), maxTail)
		t.buf = append(t.buf, p[:n]...)
		p = p[n:]

		if len(t.buf) > 2*maxTail {
			if report := crashReport(t.buf); report != nil {
				t.report = append(t.report[:0], report[:min(len(report), maxTail/4)]...)
			}
			t.buf = append(t.buf[:0], t.buf[len(t.buf)-maxTail:]...)
		}
	}
}

func (t *tail) bytes() []byte { return t.buf[max(0, len(t.buf)-maxTail):] }

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

// lastWords returns at most maxWords bytes of the tail on one line, without
// invisible characters. It begins with the crash report, if there is one.
func (t *tail) lastWords() string {
	text := string(t.bytes())
	text = text[max(0, len(text)-maxWords):]
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
	return clip(string(human.Visible([]byte(strings.Join(lines, " | ")))), maxWords)
}
