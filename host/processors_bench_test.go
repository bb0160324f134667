package host

import "testing"

// BenchmarkProcessor is what a call pays for its processor where nobody waits.
func BenchmarkProcessor(b *testing.B) {
	p := newProcessors(func() int { return 2 })
	g := newGuest("a", false)
	for b.Loop() {
		p.enter(g, false)
		p.yield(g)
		p.leave(g)
	}
}
