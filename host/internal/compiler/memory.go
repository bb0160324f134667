package compiler

import (
	"os"
	"runtime/metrics"
	"time"
)

// memoryInterval is how often a child looks at its memory.
const memoryInterval = 20 * time.Millisecond

// watchMemory ends this process when Go's runtime has taken more than most bytes
// of memory. Systems that limit a process's data do the same without a delay;
// it is all there is on the others.
func watchMemory(most int64) {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for range time.Tick(memoryInterval) {
		metrics.Read(samples)
		if samples[0].Value.Uint64()-samples[1].Value.Uint64() > uint64(most) {
			os.Exit(exitMemory)
		}
	}
}
