package background

import (
	"runtime"
	"sync"
)

// A pool calls functions on goroutines of their own, and reuses these: a call of a tool
// needs a deep stack, and growing that costs a fresh goroutine as much as a small tool takes.
type pool struct {
	work    chan func()   // taken by goroutines that are idle
	idle    chan struct{} // has an element for each of them
	closing chan struct{}
	close   func() // closes closing: goroutines end once they are idle
	all     sync.WaitGroup
}

func newPool() *pool {
	p := &pool{work: make(chan func()), idle: make(chan struct{}, 4*runtime.GOMAXPROCS(0)), closing: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closing) })
	return p
}

// run calls f, which may end its goroutine, and does not wait for it.
func (p *pool) run(f func()) {
	select {
	case p.work <- f:
	default:
		p.all.Go(func() { p.serve(f) })
	}
}

// serve calls f and then what is next, unless enough goroutines are idle.
func (p *pool) serve(f func()) {
	for f != nil {
		f()
		f = p.next()
	}
}

func (p *pool) next() func() {
	select {
	case p.idle <- struct{}{}:
		defer func() { <-p.idle }()
	default:
		return nil
	}

	select {
	case f := <-p.work:
		return f
	case <-p.closing:
		return nil
	}
}
