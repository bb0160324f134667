package webui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/server/wire"
)

// The measures of a chart, in its own units: a bar for each minute.
const (
	barWidth    = 4
	barGap      = 1
	chartHeight = 48
	maxBars     = 61
)

// A chart shows a figure of each minute of the last hour, as bars. The table of the
// history says the same in numbers.
type chart struct {
	Name   string
	Now    string // the latest full minute
	Most   string
	Desc   string // for those who do not see it
	Bars   string // a path
	Failed string // a path: the part of the bars that failed
	Width  int
	Height int
}

// A series is a figure of a minute.
type series struct {
	name   string
	of     func(wire.Minute) float64
	failed func(wire.Minute) float64 // nil: nothing of it can fail
	text   func(float64) string
}

var chartSeries = []series{
	{"Active runs", func(m wire.Minute) float64 { return float64(m.RunsActive) }, nil, number[float64]},
	{"Runs ended per minute", func(m wire.Minute) float64 { return float64(m.RunsSucceeded + m.RunsFailed + m.RunsCanceled) },
		func(m wire.Minute) float64 { return float64(m.RunsFailed) }, number[float64]},
	{"Calls per minute", func(m wire.Minute) float64 { return float64(m.Calls) }, func(m wire.Minute) float64 { return float64(m.CallErrors) }, number[float64]},
	{"Runs in the queue", func(m wire.Minute) float64 { return float64(m.RunsQueued) }, nil, number[float64]},
	{"Memory", func(m wire.Minute) float64 { return float64(m.MemoryPeak) }, nil, func(v float64) string { return human.Bytes(int64(v)) }},
	{"Processor time per minute", func(m wire.Minute) float64 { return m.CPUSeconds }, nil,
		func(v float64) string { return duration(time.Duration(v * float64(time.Second))) }},
}

// A historyView is the last hour, in charts and as a table.
type historyView struct {
	Charts  []chart
	Minutes []wire.Minute // the latest first
}

func newHistory(minutes []wire.Minute) historyView {
	minutes = minutes[max(0, len(minutes)-maxBars):]
	var v historyView
	for _, s := range chartSeries {
		v.Charts = append(v.Charts, s.chart(minutes))
	}
	v.Minutes = slices.Clone(minutes)
	slices.Reverse(v.Minutes)
	return v
}

// chart draws the minutes, the latest at the right.
func (s series) chart(minutes []wire.Minute) chart {
	c := chart{Name: s.name, Width: maxBars * barWidth, Height: chartHeight}
	var most, now, failed float64
	var when time.Time
	for _, m := range minutes {
		now = s.of(m)
		if now > most {
			most, when = now, m.At
		}
		if s.failed != nil {
			failed += s.failed(m)
		}
	}

	var bars, bad strings.Builder
	for i, m := range minutes {
		x := (maxBars - len(minutes) + i) * barWidth
		drawBar(&bars, x, s.of(m), most)
		if s.failed != nil {
			drawBar(&bad, x, s.failed(m), most)
		}
	}
	c.Bars, c.Failed = bars.String(), bad.String()

	c.Now, c.Most = s.text(now), s.text(most)
	c.Desc = fmt.Sprintf("%s in the last hour: %s now", s.name, c.Now)
	if most > 0 {
		c.Desc += fmt.Sprintf(", at most %s at %s UTC", c.Most, when.UTC().Format("15:04"))
	}
	if failed > 0 {
		c.Desc += fmt.Sprintf(", %s failed", number(failed))
	}
	return c
}

// drawBar adds a bar to a path. The smallest can be seen too.
func drawBar(path *strings.Builder, x int, value, most float64) {
	if value <= 0 || most <= 0 {
		return
	}
	height := max(1, int(value/most*chartHeight+0.5))
	fmt.Fprintf(path, "M%d %dv-%dh%dv%dz", x, chartHeight, height, barWidth-barGap, height)
}
