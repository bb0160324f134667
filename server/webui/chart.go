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
	Now    string // the latest minute
	Most   string
	Desc   string // for those who do not see it
	Bars   string // a path
	Failed string // a path: the part of the bars that failed
	Median string // a path: the part of the bars below the median
	Width  int
	Height int
}

// A series is a figure of a minute.
type series struct {
	name   string
	of     func(wire.Minute) float64
	text   func(float64) string
	failed func(wire.Minute) float64 // nil: nothing of it can fail
	median func(wire.Minute) float64 // nil: it has none
}

var (
	calledSeries = series{name: "Calls", of: func(m wire.Minute) float64 { return float64(m.Calls) }, text: number[float64],
		failed: func(m wire.Minute) float64 { return float64(m.CallErrors) }}
	latencySeries = series{name: "Latency (95 %)", of: func(m wire.Minute) float64 { return m.CallP95Seconds }, text: durationText,
		median: func(m wire.Minute) float64 { return m.CallP50Seconds }}
	fuelSeries = series{name: "Fuel", of: func(m wire.Minute) float64 { return float64(m.Fuel) }, text: number[float64]}
)

// hostSeries are the figures of a host.
var hostSeries = []series{
	calledSeries, latencySeries, fuelSeries,
	{name: "Memory", of: func(m wire.Minute) float64 { return float64(m.MemoryPeak) }, text: sizeText},
	{name: "Active runs", of: func(m wire.Minute) float64 { return float64(m.RunsActive) }, text: number[float64]},
	{name: "Runs in the queue", of: func(m wire.Minute) float64 { return float64(m.RunsQueued) }, text: number[float64]},
	{name: "Runs ended", of: func(m wire.Minute) float64 { return float64(m.RunsSucceeded + m.RunsFailed + m.RunsCanceled) }, text: number[float64],
		failed: func(m wire.Minute) float64 { return float64(m.RunsFailed) }},
	{name: "Processor time", of: func(m wire.Minute) float64 { return m.CPUSeconds }, text: durationText},
}

// toolSeries are the figures of the calls of a tool.
var toolSeries = []series{
	calledSeries, latencySeries, fuelSeries,
	{name: "Memory of a call", of: func(m wire.Minute) float64 { return float64(m.MemoryPeak) }, text: sizeText},
}

func durationText(s float64) string { return duration(time.Duration(s * float64(time.Second))) }

func sizeText(n float64) string { return human.Bytes(int64(n)) }

// A historyView is the last hour, in charts and as a table.
type historyView struct {
	Tool    string // whose calls they are; empty: all that the host has done
	Charts  []chart
	Minutes []wire.Minute // the latest first
}

func newHistory(tool string, minutes []wire.Minute) historyView {
	minutes = minutes[max(0, len(minutes)-maxBars):]
	v, all := historyView{Tool: tool}, hostSeries
	if tool != "" {
		all = toolSeries
	}
	for _, s := range all {
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
	c.Bars, c.Failed, c.Median = drawBars(minutes, s.of, most), drawBars(minutes, s.failed, most), drawBars(minutes, s.median, most)

	c.Now, c.Most = s.text(now), s.text(most)
	c.Desc = fmt.Sprintf("%s by minute, in the last hour: %s now", s.name, c.Now)
	if most > 0 {
		c.Desc += fmt.Sprintf(", at most %s at %s UTC", c.Most, when.UTC().Format("15:04"))
	}
	if failed > 0 {
		c.Desc += fmt.Sprintf(", %s failed", number(failed))
	}
	return c
}

// drawBars returns a bar for each minute as a path. Nil draws none.
func drawBars(minutes []wire.Minute, of func(wire.Minute) float64, most float64) string {
	if of == nil {
		return ""
	}
	var path strings.Builder
	for i, m := range minutes {
		drawBar(&path, (maxBars-len(minutes)+i)*barWidth, of(m), most)
	}
	return path.String()
}

// drawBar adds a bar to a path. The smallest can be seen too.
func drawBar(path *strings.Builder, x int, value, most float64) {
	if value <= 0 || most <= 0 {
		return
	}
	height := max(1, int(value/most*chartHeight+0.5))
	fmt.Fprintf(path, "M%d %dv-%dh%dv%dz", x, chartHeight, height, barWidth-barGap, height)
}
