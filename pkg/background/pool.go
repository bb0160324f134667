package background

import (
	"runtime"
	"sync"
)

// A pool calls each function on a goroutine of its own, and reuses the goroutines: a tool
// call needs a deep stack, and growing the stack of a fresh goroutine costs as much as
// running a small tool.
type pool struct {
	work    chan func()   // received by idle goroutines
	idle    chan struct{} // one element per idle goroutine
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

// serve calls f and then further functions, until enough goroutines are idle.
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
