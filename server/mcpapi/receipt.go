package mcpapi

import "sync"

// receipt is of the answer to one request: the transport says whether it was written.
type receipt struct {
	mu    sync.Mutex
	over  bool
	after []func(written bool)
	late  []func() // called when an answer that could not be written is, in a stream that was resumed
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

// deliver is expect for something that wants to know too if the client gets the answer
// later: then f is called again, with true.
func (r *receipt) deliver(f func(written bool)) {
	r.mu.Lock()
	r.late = append(r.late, func() { f(true) })
	r.mu.Unlock()
	r.expect(f)
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

// resumed says that the answer was written in a stream that was resumed.
func (r *receipt) resumed() {
	r.mu.Lock()
	late := r.late
	r.late = nil
	r.mu.Unlock()
	for _, f := range late {
		f()
	}
}
