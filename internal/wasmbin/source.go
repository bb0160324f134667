package wasmbin

import (
	"errors"
	"io"
)

// source is the binary a module is read from: all of it in memory, or a file of
// which a window is.
type source struct {
	size   int
	start  int    // of the window
	window []byte // never changed, so that views into it stay as they are
	file   io.ReaderAt
}

// windowSize is how much of a file is read at a time. The head of most modules,
// up to their code, is smaller.
const windowSize = 8 << 10

// bytes returns n bytes of the binary from pos, fewer where it ends. Its error
// is that of the file.
func (s *source) bytes(pos, n int) ([]byte, error) {
	n = min(n, s.size-pos)
	if pos >= s.start && pos+n <= s.start+len(s.window) {
		at := pos - s.start
		return s.window[at : at+n : at+n], nil
	}

	window := make([]byte, min(max(n, windowSize), s.size-pos))
	read, err := s.file.ReadAt(window, int64(pos))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if read < len(window) {
		return nil, &Error{Err: ErrMalformed, Offset: pos + read, Detail: "the file ends before its size: is it being written?", cause: ErrTruncated}
	}

	s.start, s.window = pos, window
	return window[:n:n], nil
}
