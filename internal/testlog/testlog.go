// Package testlog is for tests that look at what something says while it says
// it.
package testlog

import (
	"bytes"
	"sync"
)

// Buffer is a bytes.Buffer that can be read while it is written. Its zero value
// is empty. It is safe for concurrent use.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to it.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
