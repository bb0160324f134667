package webui

import (
	"bytes"
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	firstOutput = 32 << 10 // bytes of the end of an output that are shown at first
	mostOutput  = 64 << 10 // bytes that are shown as it grows
	pieceOutput = 4 << 10  // about the bytes of one piece, which is sent again when a line is added to it
	mostReads   = 8        // of a log each time the page is read
)

// A tail is the end of a run's output, which grows.
type tail struct {
	service *server.Service
	attempt int
	known   bool
	at      int64 // where to continue reading
	ended   bool  // all of it was read
	pieces  []piece
}

// A piece is some lines of an output, and an element of its own: adding a line
// does not send the others again.
type piece struct {
	Attempt int
	From    int64
	Gap     int64 // bytes before it that were not kept
	data    []byte
	row     *row // rendered; nil if it has changed
}

// Text is the piece for people: without escape sequences and overwritten lines.
func (p *piece) Text() string { return server.Clean(p.data) }

// ID is the id of its element.
func (p *piece) ID() string { return fmt.Sprintf("out-%d-%d", p.Attempt, p.From) }

// read reads new output; only the end of it if it is more than a page shows.
func (t *tail) read(ctx context.Context, run wire.Run) error {
	if run.Attempt != t.attempt {
		*t = tail{service: t.service, attempt: run.Attempt}
	}

	log := t.service.Session(run.Session)
	for reads := 0; reads < mostReads && !t.ended; reads++ {
		from := t.at
		if !t.known {
			from = -firstOutput
		}
		c, err := log.Tail(ctx, run.TaskID, from, mostOutput)
		if err != nil {
			return err
		}
		if t.known && c.End-t.at > mostOutput {
			t.pieces, t.known = nil, false
			continue
		}
		if !t.known {
			t.begin(&c)
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
	t.known, t.at = true, c.Offset
	if i := bytes.IndexByte(c.Data, '\n') + 1; c.Offset > 0 && i < len(c.Data) {
		c.Data, c.Offset = c.Data[i:], c.Offset+int64(i)
		t.at = c.Offset
	}
}

// take adds a chunk to the pieces.
func (t *tail) take(c server.Chunk) {
	gap := c.Offset - t.at
	for data := c.Data; len(data) > 0; {
		last := len(t.pieces) - 1
		if last < 0 || gap > 0 || len(t.pieces[last].data) >= pieceOutput {
			t.pieces = append(t.pieces, piece{Attempt: t.attempt, From: c.Offset + int64(len(c.Data)-len(data)), Gap: gap})
			gap, last = 0, last+1
		}
		p := &t.pieces[last]
		n := fill(data, pieceOutput-len(p.data))
		p.data, p.row = append(p.data, data[:n]...), nil
		data = data[n:]
	}
	t.at = c.Offset + int64(len(c.Data))
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
	for n := room; n > max(0, room-utf8.UTFMax); n-- {
		if utf8.RuneStart(data[n]) {
			return n
		}
	}
	return room
}

// forget drops the oldest pieces when there are too many.
func (t *tail) forget() {
	n := 0
	for _, p := range t.pieces {
		n += len(p.data)
	}

	drop := 0
	for ; n > mostOutput; drop++ {
		n -= len(t.pieces[drop].data)
	}
	t.pieces = t.pieces[drop:]
}

// rows are the pieces as elements.
func (t *tail) rows() ([]row, error) {
	rows := make([]row, len(t.pieces))
	for i := range t.pieces {
		p := &t.pieces[i]
		if p.row == nil {
			made, err := newRow("output-row", p.ID(), p)
			if err != nil {
				return nil, err
			}
			p.row = &made
		}
		rows[i] = *p.row
	}
	return rows, nil
}

// An outputView describes an output.
type outputView struct {
	ID      string
	Any     bool
	Earlier bool // there is more before what is shown
	Active  bool
}

func (t *tail) about(run wire.Run) outputView {
	return outputView{
		ID: run.TaskID, Any: len(t.pieces) > 0, Earlier: len(t.pieces) > 0 && t.pieces[0].From > 0, Active: !run.Status.Terminal(),
	}
}
