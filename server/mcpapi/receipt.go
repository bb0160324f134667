package mcpapi

import "sync"

// receipt is of the answer to one request: the transport says whether it was written.
type receipt struct {
	request string // the client's id of the request, for the log

	mu    sync.Mutex
	over  bool
	after []func(written bool)
	late  []func() // called when an answer that could not be written is, in a stream that was resumed
	kept  bool     // the answer is in a stream that can be resumed
	lost  func()   // called once nobody can get the answer any more
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

// miss has lost called, at most once, if nobody gets the answer: it could not be
// written, and nobody has resumed its stream as long as that was kept. The answer is
// about to be written.
func (r *receipt) miss(lost func()) {
	r.mu.Lock()
	gone := r.over && !r.kept
	if !gone {
		r.lost = lost
	}
	r.mu.Unlock()
	if gone {
		lost()
	}
}

// keep says that the answer is kept in a stream that can be resumed, until abandon.
func (r *receipt) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = true
}

// abandon says that the stream with the answer is kept no longer.
func (r *receipt) abandon() {
	r.mu.Lock()
	r.kept = false
	lost := r.lost
	if !r.over { // it may still be written
		lost = nil
	} else {
		r.lost = nil
	}
	r.mu.Unlock()
	if lost != nil {
		lost()
	}
}

// settle says whether the answer was written. Only the first time counts.
func (r *receipt) settle(written bool) {
	r.mu.Lock()
	after, lost := r.after, r.lost
	r.over, r.after = true, nil
	if written || !r.kept {
		r.lost = nil
	}
	if written || r.kept {
		lost = nil
	}
	r.mu.Unlock()
	for _, f := range after {
		f(written)
	}
	if lost != nil {
		lost()
	}
}

// resumed says that the answer was written in a stream that was resumed.
func (r *receipt) resumed() {
	r.mu.Lock()
	late := r.late
	r.late, r.lost = nil, nil
	r.mu.Unlock()
	for _, f := range late {
		f()
	}
}
