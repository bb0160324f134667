package mcpapi

import "sync"

// receipt is of the answer to one request: the transport says whether it was written.
type receipt struct {
	request string // the client's id of the request, for the log

	mu    sync.Mutex
	over  bool
	after []func(written bool)
}

// expect has f called once when the answer is written, or cannot be.
func (r *receipt) expect(f func(written bool)) {
	r.mu.Lock()
	over := r.over
	if !over {
		r.after = append(r.after, f)
	}
	r.mu.Unlock()
	if over { // without the result of the handler
		f(false)
	}
}

// settle says whether the answer was written. Only the first time counts.
func (r *receipt) settle(written bool) {
	r.mu.Lock()
	after := r.after
	r.over, r.after = true, nil
	r.mu.Unlock()
	for _, f := range after {
		f(written)
	}
}
