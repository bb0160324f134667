package webui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/server/wire"
)

// Dimensions of a chart in its own units, with a bar for each minute.
const (
	barWidth    = 4
	barGap      = 1
	chartHeight = 48
	maxBars     = 61
)

// A chart shows a figure for each minute of the last hour as bars. The table of the
// history contains the same numbers.
type chart struct {
	Name   string
	Now    string // value of the latest minute
	Most   string
	Desc   string // description for screen readers
	Bars   string // SVG path
	Failed string // SVG path of the failed part of the bars
	Median string // SVG path of the part of the bars below the median
	Width  int
	Height int
}

// A series is one figure for each minute.
type series struct {
	name   string
	of     func(wire.Minute) float64
	text   func(float64) string
	failed func(wire.Minute) float64 // failed part of the figure; nil if no part can fail
	median func(wire.Minute) float64 // median of the figure; nil if there is none
}

var (
	calledSeries = series{name: "Calls", of: func(m wire.Minute) float64 { return float64(m.Calls) }, text: number[float64],
		failed: func(m wire.Minute) float64 { return float64(m.CallErrors) }}
	latencySeries = series{name: "Latency (95 %)", of: func(m wire.Minute) float64 { return m.CallP95Seconds }, text: durationText,
		median: func(m wire.Minute) float64 { return m.CallP50Seconds }}
	fuelSeries = series{name: "Fuel", of: func(m wire.Minute) float64 { return float64(m.Fuel) }, text: number[float64]}
)

// hostSeries lists the figures of a host.
var hostSeries = []series{
	calledSeries, latencySeries, fuelSeries,
	{name: "Memory", of: func(m wire.Minute) float64 { return float64(m.MemoryPeak) }, text: sizeText},
	{name: "Active runs", of: func(m wire.Minute) float64 { return float64(m.RunsActive) }, text: number[float64]},
	{name: "Runs in the queue", of: func(m wire.Minute) float64 { return float64(m.RunsQueued) }, text: number[float64]},
	{name: "Runs ended", of: func(m wire.Minute) float64 { return float64(m.RunsSucceeded + m.RunsFailed + m.RunsCanceled) }, text: number[float64],
		failed: func(m wire.Minute) float64 { return float64(m.RunsFailed) }},
	{name: "Processor time", of: func(m wire.Minute) float64 { return m.CPUSeconds }, text: durationText},
}

// toolSeries lists the figures for the calls to one tool.
var toolSeries = []series{
	calledSeries, latencySeries, fuelSeries,
	{name: "Memory of a call", of: func(m wire.Minute) float64 { return float64(m.MemoryPeak) }, text: sizeText},
}

func durationText(s float64) string { return duration(time.Duration(s * float64(time.Second))) }

func sizeText(n float64) string { return human.Bytes(int64(n)) }

// A historyView shows the last hour in charts and a table.
type historyView struct {
	Tool    string // tool of the calls; empty for everything the host has done
	Charts  []chart
	Minutes []wire.Minute // latest first
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

// chart draws the minutes, the latest on the right.
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

// drawBars returns a path with a bar for each minute. It draws nothing if of is nil.
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

// drawBar adds a bar to a path. Even the smallest one is visible.
func drawBar(path *strings.Builder, x int, value, most float64) {
	if value <= 0 || most <= 0 {
		return
	}
	height := max(1, int(value/most*chartHeight+0.5))
	fmt.Fprintf(path, "M%d %dv-%dh%dv%dz", x, chartHeight, height, barWidth-barGap, height)
}
