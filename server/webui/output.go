package webui

import (
	"bytes"
	"context"
	"fmt"

	"github.com/toolhost/toolhost/server"
)

const (
	maxOutput = 32 << 10 // approximate bytes shown of the end of an output
	maxPiece  = 4 << 10  // approximate bytes of a piece
	maxReads  = 8        // reads of a log for each load of the page
)

// A piece is some lines of an output in an element of its own. Adding a line leaves the
// others as they are in the browser, including selected text.
type piece struct {
	Attempt int
	From    int64
	Gap     int64 // bytes dropped before it
	data    []byte
}

// Text returns the piece for people, without escape sequences and overwritten lines.
func (p piece) Text() string { return server.Clean(p.data) }

// ID returns the id of the piece's element.
func (p piece) ID() string { return fmt.Sprintf("out-%d-%d", p.Attempt, p.From) }

// readOutput reads the end of a run's output.
func readOutput(ctx context.Context, session server.Session, id string) ([]piece, error) {
	c, err := session.Tail(ctx, id, -maxOutput, maxOutput)
	if err != nil {
		return nil, err
	}
	from := c.Offset - c.Offset%maxPiece // pieces may begin here

	var pieces []piece
	for at, reads := from, 0; at < c.End && reads < maxReads; reads++ {
		if c, err = session.Tail(ctx, id, at, maxOutput+maxPiece); err != nil || len(c.Data) == 0 {
			return pieces, err
		}

		gap := c.Offset - at
		if n := boundary(c.Data, 0); at == from && from > 0 && n < len(c.Data) {
			c.Data, c.Offset, gap = c.Data[n:], c.Offset+int64(n), 0 // without the rest of an earlier line
		}
		at = c.Offset + int64(len(c.Data))
		pieces = append(pieces, split(c, gap)...)
	}
	return pieces, nil
}

// split cuts a chunk into pieces. Cuts depend only on the bytes near them, so they stay
// in place as the output grows.
func split(c server.Chunk, gap int64) (pieces []piece) {
	for len(c.Data) > 0 {
		n := boundary(c.Data, maxPiece-int(c.Offset%maxPiece))
		pieces = append(pieces, piece{c.Attempt, c.Offset, gap, c.Data[:n]})
		c.Data, c.Offset, gap = c.Data[n:], c.Offset+int64(n), 0
	}
	return pieces
}

// boundary returns the end of the first line that ends at from or later. It cuts a line
// longer than a piece between characters.
func boundary(data []byte, from int) int {
	if from >= len(data) {
		return len(data)
	}

	rest := data[from:min(from+maxPiece, len(data))]
	if i := bytes.IndexByte(rest, '\n'); i >= 0 {
		return from + i + 1
	}
	if len(rest) == maxPiece {
		return from + len(rest) - server.PartialRune(rest)
	}
	return len(data)
}
