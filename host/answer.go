package host

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/human"
)

// answer is what a guest has written.
type answer struct {
	limit      int64 // bytes of all streams together
	describing bool  // what is written is mostly the manifest
	written    int64
	logged     int64 // bytes for the operator's log

	result, errText, manifest []byte
	given                     bool // something was written to the result, perhaps nothing
	content                   []abi.Block
	summary                   string
	stderr                    tail // the end of what it wrote there
}

const (
	maxBlocks = 256      // of content in one result
	maxTail   = 2048     // bytes of a tool's last words that an error text quotes
	maxLogged = 64 << 10 // bytes that one call may put into the operator's log
)

// count counts n bytes. Its error matches ErrOutput, and ends the call.
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

// buffer is where the data of a stream is kept until the call ends; nil if it is
// not.
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

// add keeps a block of content. Its error says what is wrong with it.
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

// tail keeps the last bytes written to it.
type tail struct{ buf []byte }

func (t *tail) write(p []byte) {
	t.buf = append(t.buf, p[max(0, len(p)-maxTail):]...)
	if len(t.buf) > 2*maxTail {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-maxTail:]...)
	}
}

func (t *tail) bytes() []byte { return t.buf[max(0, len(t.buf)-maxTail):] }

// lastWords is at most maxTail bytes of the tail on one line, without invisible
// characters. It begins with the report of a panic, if it has one: stacks follow it.
func (t *tail) lastWords() string {
	text := t.bytes()
	for _, report := range []string{"\npanic: ", "\nfatal error: ", "\nthread '"} { // of Go, of its runtime, of Rust
		if at := bytes.LastIndex(append([]byte{'\n'}, t.buf...), []byte(report)); at >= 0 {
			text = t.buf[at:]
			break
		}
	}

	lines := strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(strings.ReplaceAll(lines[i], "\t", " "))
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	return clip(string(human.Visible([]byte(strings.Join(lines, " | ")))), maxTail)
}
