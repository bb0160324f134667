package mcpapi

import "sync"

// receipt is of the answer to one request: the transport says whether it was written.
type receipt struct {
	request string // the client's id of the request, for the log

	mu   sync.Mutex
	over bool
	lost func() // called if it was not; nil: nobody wants to know
}

// expect has lost called if the answer is not written. It reports false if that is known
// already: the client is gone.
func (r *receipt) expect(lost func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = lost
	return !r.over
}

// settle says whether the answer was written. Only the first time counts.
func (r *receipt) settle(written bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over && !written && r.lost != nil {
		r.lost()
	}
	r.over = true
}
