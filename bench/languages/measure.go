package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// call calls the tool, in a clean instance.
func (p *project) call(ctx context.Context, m *host.Module) (abi.Result, error) {
	r, err := p.host.Call(ctx, m, host.Call{Tool: tool, Args: []byte(args), Traits: host.Traits{Plugin: plugin, Readonly: true}})
	if err == nil && string(r.Value) != result {
		err = fmt.Errorf("expected %s, got %s %s", result, r.Value, r.Error)
	}
	return r, err
}

// count is the tool in Go, called as a function: the baseline.
func count(args []byte) ([]byte, error) {
	var in struct{ Text string }
	if err := json.Unmarshal(args, &in); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]int{"words": len(strings.Fields(in.Text))})
}

// figures are those of the calls of a language.
type figures struct {
	wall, cpu []time.Duration // of each call
	ratios    []float64       // of the median of a round to that of the baseline in the same round
	memory    int64           // bytes of linear memory
	fuel      int64           // of a call, without that of starting up
	startup   int64           // fuel of starting up
}

// measured is what all calls took.
type measured struct {
	baseline []time.Duration
	of       []figures // of each project
}

// measure calls the tools of all projects, in turns.
func measure(ctx context.Context, projects []*project, rounds, calls int) (measured, error) {
	m := measured{of: make([]figures, len(projects))}
	for range rounds {
		base := make([]time.Duration, calls)
		for i := range base {
			begin := time.Now()
			if _, err := count([]byte(args)); err != nil {
				return m, err
			}
			base[i] = time.Since(begin)
		}
		m.baseline = append(m.baseline, base...)

		for n, p := range projects {
			if p.missing != nil {
				continue
			}
			f := &m.of[n]
			walls := make([]time.Duration, calls)
			for i := range walls {
				r, err := p.call(ctx, p.module)
				if err != nil {
					return m, fmt.Errorf("%s: %w", p.title, err)
				}
				u := r.Usage
				walls[i] = u.Wall - u.Wait
				f.cpu = append(f.cpu, u.CPU)
				f.memory, f.fuel, f.startup = max(f.memory, u.MemoryPeak), u.Fuel-u.StartupFuel, u.StartupFuel
			}
			f.wall = append(f.wall, walls...)
			f.ratios = append(f.ratios, float64(median(walls))/float64(max(1, median(base))))
		}
	}
	return m, nil
}

func median[T cmp.Ordered](all []T) T { return quantile(all, 0.5) }

// quantile is the smallest value that at least that part of all values do not exceed.
func quantile[T cmp.Ordered](all []T, part float64) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
