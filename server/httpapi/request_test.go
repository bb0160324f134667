package httpapi

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// offers records how much room a reader was offered, and in how many buffers.
type offers struct {
	io.Reader
	read    int
	room    func(read, offered int)
	buffers map[*byte]bool // by their last byte
}

func (o *offers) Read(p []byte) (int, error) {
	o.room(o.read, len(p))
	o.buffers[&p[:cap(p)][cap(p)-1]] = true
	n, err := o.Reader.Read(p)
	o.read += n
	return n, err
}

// A body is moved once, from a small buffer to one of its length. An announced length
// costs memory only in proportion to what has arrived.
func TestReadBody(t *testing.T) {
	for _, test := range []struct {
		size, length int64
		buffers      int // 0: any number
	}{
		{0, 0, 1},
		{16, 16, 1},
		{firstRead - 1, firstRead - 1, 1},
		{firstRead, firstRead, 2},
		{1<<20 + 30, 1<<20 + 30, 2},
		{fullRead*firstRead - 1, fullRead*firstRead - 1, 2},
		{maxBody, maxBody, 3},
		{16, maxBody, 1},
		{firstRead, maxBody, 2},
		{16, 1 << 60, 1},
		{16, -1, 0},
		{maxBody, -1, 0},
	} {
		text := bytes.Repeat([]byte("x"), int(test.size))
		body := &offers{Reader: bytes.NewReader(text), buffers: map[*byte]bool{}, room: func(read, offered int) {
			require.LessOrEqual(t, read+offered, max(firstRead, fullRead*read), "%d of %d", test.size, test.length)
		}}
		data, err := readBody(body, test.length)
		require.NoError(t, err)
		require.True(t, bytes.Equal(text, data), "%d of %d", test.size, test.length)

		if test.buffers > 0 {
			require.Len(t, body.buffers, test.buffers, "%d of %d", test.size, test.length)
		}
	}
}
