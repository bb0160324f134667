package sched

import "testing"

// BenchmarkProcessor is what a call pays for its processor where nobody waits.
func BenchmarkProcessor(b *testing.B) {
	p := New(func() int { return 2 })
	g := newGuest("a", false)
	for b.Loop() {
		enter(p, g)
		g.yield()
		g.Idle()
	}
}
