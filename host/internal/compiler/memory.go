package compiler

import (
	"os"
	"runtime/metrics"
	"time"
)

// memoryInterval is how often a child checks its memory.
const memoryInterval = 5 * time.Millisecond

// watchMemory calls half when Go's runtime has taken more than half of most bytes
// of memory, and ends this process when it has taken more than most. Systems that
// limit a process's data do the latter without a delay.
func watchMemory(most int64, half func()) {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	halfway := false
	for range time.Tick(memoryInterval) {
		metrics.Read(samples)
		taken := samples[0].Value.Uint64() - samples[1].Value.Uint64()
		if taken > uint64(most)/2 && !halfway {
			halfway = true
			half()
		}
		if taken > uint64(most) {
			os.Exit(exitMemory)
		}
	}
}
