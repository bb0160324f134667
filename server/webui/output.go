package webui

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	firstOutput = 32 << 10 // bytes of the end of an output that are shown at first
	mostOutput  = 64 << 10 // bytes that are shown as it grows
	pieceOutput = 4 << 10  // about the bytes of one piece
	mostReads   = 8        // of a log each time the page is read
)

// A tail is the end of a run's output, which grows.
type tail struct {
	attempt int
	known   bool
	at      int64 // where to continue reading
	ended   bool  // all of it was read
	Pieces  []piece
}

// A piece is some lines of an output, and an element of its own: adding a line
// leaves the others as they are in the browser, selected text included.
type piece struct {
	Attempt int
	From    int64
	Gap     int64 // bytes before it that were not kept
	data    []byte
}

// Text is the piece for people: without escape sequences and overwritten lines.
func (p piece) Text() string { return server.Clean(p.data) }

// ID is the id of its element.
func (p piece) ID() string { return fmt.Sprintf("out-%d-%d", p.Attempt, p.From) }

// Earlier reports whether there is more before what is shown.
func (t tail) Earlier() bool { return len(t.Pieces) > 0 && t.Pieces[0].From > 0 }

// read reads new output; only the end of it if it is more than a page shows.
func (t *tail) read(ctx context.Context, session server.Session, run wire.Run) error {
	if run.Attempt != t.attempt {
		*t = tail{attempt: run.Attempt}
	}

	for reads := 0; reads < mostReads && !t.ended; reads++ {
		from := t.at
		if !t.known {
			from = -firstOutput
		}
		c, err := session.Tail(ctx, run.TaskID, from, mostOutput)
		switch {
		case err != nil:
			return err
		case !t.known:
			t.begin(&c)
		case c.End-t.at > mostOutput:
			t.Pieces, t.known = nil, false
			continue
		}

		t.take(c)
		if len(c.Data) == 0 || t.at >= c.End {
			t.ended = run.Status.Terminal()
			break
		}
	}
	t.forget()
	return nil
}

// begin starts with the first chunk, cut to whole lines if possible.
func (t *tail) begin(c *server.Chunk) {
	if i := bytes.IndexByte(c.Data, '\n') + 1; c.Offset > 0 && i < len(c.Data) {
		c.Data, c.Offset = c.Data[i:], c.Offset+int64(i)
	}
	t.known, t.at = true, c.Offset
}

// take adds a chunk to the pieces.
func (t *tail) take(c server.Chunk) {
	gap := c.Offset - t.at
	t.at = c.Offset

	for data := c.Data; len(data) > 0; {
		last := len(t.Pieces) - 1
		if last < 0 || gap > 0 || len(t.Pieces[last].data) >= pieceOutput {
			t.Pieces = append(t.Pieces, piece{Attempt: t.attempt, From: t.at, Gap: gap})
			gap, last = 0, last+1
		}

		p := &t.Pieces[last]
		n := fill(data, pieceOutput-len(p.data))
		p.data = append(p.data, data[:n]...)
		data, t.at = data[n:], t.at+int64(n)
	}
}

// fill returns how much of data goes into a piece that has room: whole lines, or
// all of it. A longer line is cut between characters.
func fill(data []byte, room int) int {
	if len(data) <= room {
		return len(data)
	}
	if i := bytes.LastIndexByte(data[:room], '\n'); i >= 0 {
		return i + 1
	}
	return cmp.Or(room-server.PartialRune(data[:room]), room)
}

// forget drops the oldest pieces when there are too many.
func (t *tail) forget() {
	n := 0
	for i := len(t.Pieces) - 1; i >= 0; i-- {
		if n += len(t.Pieces[i].data); n > mostOutput {
			t.Pieces = t.Pieces[i+1:]
			return
		}
	}
}
