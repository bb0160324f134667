package mcpapi

import "sync"

// receipt tracks whether the transport wrote the answer to a request.
type receipt struct {
	request string // the client's id of the request, for the log

	mu   sync.Mutex
	over bool
	lost func() // called if the answer was not written; may be nil
}

// expect sets lost, which is called if the answer is not written. It reports false if the
// client is already known to be gone.
func (r *receipt) expect(lost func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = lost
	return !r.over
}

// settle records whether the answer was written. Only the first call counts.
func (r *receipt) settle(written bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over && !written && r.lost != nil {
		r.lost()
	}
	r.over = true
}
