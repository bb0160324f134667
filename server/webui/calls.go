package webui

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	maxCalls      = 100 // latest calls shown
	maxToolRows   = 100 // most used tools with figures
	maxToolFilter = 128 // bytes of a filter
)

// A callFilter selects calls.
type callFilter struct {
	Tool   string
	Failed bool
}

// callFigures is the content of the page of calls.
type callFigures struct {
	Tools []toolRow
	More  int // tools that are not shown
}

// A toolRow shows the totals of a tool's calls.
type toolRow struct {
	wire.ToolFigures
	Failed int64
	Why    string // number of failures by reason
	Hour   chart  // calls in the last hour
}

// A callRow is a call that has ended.
type callRow struct{ wire.CallRecord }

// ID returns the id of the row's element, so that what is opened there stays open.
func (r callRow) ID() string { return fmt.Sprintf("call-%d", r.At.UnixNano()) }

// State returns how the call ended.
func (r callRow) State() state {
	if r.TaskID != "" {
		return state{"live", "▶", "continued as a run"}
	}
	return endOf(r.Outcome, string(r.Code))
}

// endOf returns how a call ended. The reason why it failed may be empty.
func endOf(outcome abi.Kind, why string) state {
	switch outcome {
	case abi.Success:
		return state{"good", "✓", "succeeded"}
	case abi.CanceledKind:
		return state{"off", "■", "canceled"}
	}
	return state{"bad", "✗", "failed: " + wordOf(wire.ErrorKind(cmp.Or(why, string(outcome))))}
}

// calls shows statistics of direct calls by tool, and the latest calls.
func (s *site) calls(r *http.Request) (page, error) {
	f := callFilter{Tool: r.URL.Query().Get("tool"), Failed: r.URL.Query().Get("failed") == "true"}
	if len(f.Tool) > maxToolFilter {
		return page{}, refuse(http.StatusBadRequest, "The parameter tool is too long")
	}

	figures := s.service.Figures()
	var rows []callRow
	for _, c := range figures.Calls(server.CallQuery{Tool: f.Tool, Failed: f.Failed, Limit: maxCalls}) {
		rows = append(rows, callRow{c})
	}
	sections := []section{{"call-tools", newCallFigures(figures)}, {"call-filter", f}, {"calls", rows}}
	if minutes := figures.HistoryOf(f.Tool); len(minutes) > 0 {
		sections = slices.Insert(sections, 2, section{"history", newHistory(f.Tool, minutes)})
	}
	return page{title: "Calls", menu: "/ui/calls", sections: sections}, nil
}

func newCallFigures(figures *server.Figures) callFigures {
	tools := figures.Tools()
	v := callFigures{More: max(0, len(tools)-maxToolRows)}
	for _, t := range tools[:len(tools)-v.More] {
		row := toolRow{ToolFigures: t, Hour: calledSeries.chart(figures.HistoryOf(t.Tool))}
		var why []string
		for _, kind := range slices.Sorted(maps.Keys(t.Errors)) {
			row.Failed += t.Errors[kind]
			why = append(why, wordOf(wire.ErrorKind(kind))+" "+number(t.Errors[kind]))
		}
		row.Why = strings.Join(why, ", ")
		v.Tools = append(v.Tools, row)
	}
	return v
}
