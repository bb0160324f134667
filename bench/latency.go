package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// stops measures how long calls run on after they were stopped, as the product runs
// them: a host, a context that is canceled.
type stops struct {
	host *host.Host
	spin *host.Module // keeps a processor busy
}

// policy has room for whatever endless guests do.
var policy = host.Policy{Fuel: host.MaxFuel, Memory: 1 << 30, Timeout: time.Hour, Grant: host.Grant{Clock: true, Random: true}}

// latencies prints the time from when a call is stopped until it has returned, with
// all processors busy, and how long Go's collector stops the world meanwhile.
func latencies(load *loader, rounds int) error {
	ctx := context.Background()
	h, err := host.New(ctx, host.Config{})
	if err != nil {
		return err
	}
	defer h.Close(ctx)
	s := &stops{host: h}
	if s.spin, err = s.compile(load, endlessGuests[0]); err != nil {
		return err
	}

	fmt.Println("\nfrom stop to stopped, all processors busy     p50       p99       max")
	for _, e := range endlessGuests {
		times, err := s.measure(load, e, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		fmt.Printf("%-40s %7.3f   %7.3f   %7.3f ms\n", e.name, 1e3*quantile(times, .5), 1e3*quantile(times, .99), 1e3*quantile(times, 1))
	}

	s.pauses(rounds)
	return nil
}

func (s *stops) compile(load *loader, e endless) (*host.Module, error) {
	wasm, err := e.wasm(load)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	m, err := s.host.Compile(context.Background(), wasm)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	return m, nil
}

// measure returns the seconds that each of so many stops took.
func (s *stops) measure(load *loader, e endless, rounds int) ([]float64, error) {
	m, err := s.compile(load, e)
	if err != nil {
		return nil, err
	}
	defer m.Close(context.Background())
	defer s.keepBusy(runtime.GOMAXPROCS(0) - 1)()

	var times []float64
	for i := range rounds {
		ctx, cancel := context.WithCancel(context.Background())
		var at time.Time
		stop := func() { at = time.Now(); cancel() }
		began := func(func() abi.Usage) { time.AfterFunc(time.Duration(40+i%50)*time.Millisecond, stop) }
		_, err := s.host.Call(ctx, m, host.Call{Tool: "endless", Policy: policy, Observers: host.Observers{Used: began}})
		times = append(times, time.Since(at).Seconds())
		if !errors.Is(err, context.Canceled) {
			return nil, fmt.Errorf("ended by itself: %w", err)
		}
	}
	return times, nil
}

// keepBusy has n guests spin until the returned function is called.
func (s *stops) keepBusy(n int) (release func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			_, _ = s.host.Call(ctx, s.spin, host.Call{Tool: "spin", Background: true, Policy: policy})
		})
	}
	return func() { cancel(); wg.Wait() }
}

// pauses prints how long the collector stops the world while guests spin on all
// processors.
func (s *stops) pauses(rounds int) {
	const name = "/sched/pauses/total/gc:seconds"
	read := func() *metrics.Float64Histogram {
		sample := []metrics.Sample{{Name: name}}
		metrics.Read(sample)
		return sample[0].Value.Float64Histogram()
	}
	defer s.keepBusy(runtime.GOMAXPROCS(0))()
	before := read()
	for range rounds {
		runtime.GC()
	}
	after := read()
	total := uint64(0)
	for i := range after.Counts {
		after.Counts[i] -= before.Counts[i]
		total += after.Counts[i]
	}
	at := func(q float64) float64 {
		n := uint64(math.Ceil(q * float64(total)))
		for i, c := range after.Counts {
			if n <= c {
				return 1e3 * after.Buckets[i+1]
			}
			n -= c
		}
		return math.Inf(1)
	}
	fmt.Printf("%-40s %7.3f   %7.3f   %7.3f ms\n", "collector stops the world, guests spin", at(.5), at(.99), at(1))
}
