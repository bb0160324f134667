package main

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/toolhost/toolhost/internal/human"
)

// table is the table in Markdown.
func table(projects []*project, m measured) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | needs | commands | they take | author's lines | module | compile, CPU | build after a change (CPU) | serve it (CPU) |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, p := range projects {
		needs := cmp.Or(p.toolchain, "nothing")
		if p.missing != nil {
			fmt.Fprintf(&b, "| %s | %s | not measured: the toolchain is missing | | | | | | |\n", p.title, needs)
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %d | %s | %s | %s (%s) | %s (%s) |\n", p.title, needs, p.commands, short(p.first),
			p.lines, human.Bytes(int64(p.bytes)), short(p.compiled), short(p.change), short(p.changeOf), short(p.serve), short(p.serveOf))
	}

	fmt.Fprintf(&b, "\n| clean warm call | p50 | p99 | CPU p50 | ratio (quartiles) | memory | fuel | fuel of starting up |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for n, p := range projects {
		if p.missing != nil {
			continue
		}
		f := m.of[n]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.0f (%.0f to %.0f) | %s | %s | %s |\n", p.title,
			short(quantile(f.wall, 0.5)), short(quantile(f.wall, 0.99)), short(median(f.cpu)),
			median(f.ratios), quantile(f.ratios, 0.25), quantile(f.ratios, 0.75), human.Bytes(f.memory), thousands(f.fuel), thousands(f.startup))
	}
	fmt.Fprintf(&b, "| the same in Go, as a function | %s | %s | | 1 | | | |\n", short(median(m.baseline)), short(quantile(m.baseline, 0.99)))

	fmt.Fprintf(&b, "\n%s calls of each, in turns, on %s/%s with %d processors.\n", thousands(int64(len(m.baseline))), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	return b.String()
}

// short is a duration in about three digits.
func short(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d >= unit.of {
			n := float64(d) / float64(unit.of)
			digits := 0
			if n < 10 {
				digits = 2
			} else if n < 100 {
				digits = 1
			}
			return fmt.Sprintf("%.*f %s", digits, n, unit.name)
		}
	}
	return fmt.Sprintf("%d ns", d.Nanoseconds())
}

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
