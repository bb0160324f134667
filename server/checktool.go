package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// The default wait of check_background, and the sizes of its answers.
const (
	defaultWait = 60 * time.Second // for the end of named runs
	maxAnswer   = 50_000           // characters of one answer
	maxInline   = 8 << 10          // bytes of a result that is shown whole
	preview     = 1 << 10          // bytes that are shown of a larger result
	envelope    = 400              // characters of a report without its output and its result
	minRoom     = 32               // characters; nothing is cut to less
)

// portion returns how many characters the output and the result of each of n
// runs may have in an answer.
func portion(n int) int { return (maxAnswer/n - envelope) / 2 }

// excerpt replaces a result or content that is too large to show. It is zero if
// both are shown.
type excerpt struct {
	ResultBytes   int    `json:"result_bytes,omitempty"`
	ResultPreview string `json:"result_preview,omitempty"` // its beginning
	ContentBytes  int    `json:"content_bytes,omitempty"`
}

// cut removes a result and content that have more than max bytes, and returns
// their excerpt.
func cut(result, content *json.RawMessage, max int) (e excerpt) {
	if len(*result) > max {
		e.ResultBytes, e.ResultPreview = len(*result), strings.ToValidUTF8(string((*result)[:min(preview, max)]), "")
		*result = nil
	}
	if len(*result)+len(*content) > max {
		e.ContentBytes = len(*content)
		*content = nil
	}
	return e
}

// part returns a part of a run's payload; nil if the record is gone.
func (v Session) part(ctx context.Context, id string, part engine.Part) (json.RawMessage, error) {
	data, err := v.service.runs.Payload(ctx, v.name, id, part)
	if errors.Is(err, engine.ErrNotFound) {
		return nil, nil
	}
	return data, err
}

// report is the answer of check_background for one run.
type report struct {
	background.Report
	excerpt
	Awaited []string `json:"waiting_for_input,omitempty"` // questions to its user
}

// listing is the answer of check_background for all runs.
type listing struct {
	background.Overview
	Awaiting []string `json:"waiting_for_input,omitempty"` // runs with open questions to their user
}

// check reports on runs, or lists them.
func check(ctx context.Context, s *Service, req Request) (any, error) {
	in, err := decode[struct {
		ID       string   `json:"task_id"`
		IDs      []string `json:"task_ids"`
		List     bool     `json:"list"`
		Wait     *float64 `json:"wait_seconds"`
		Until    string   `json:"until"`
		Cursor   string   `json:"cursor"`
		MaxChars *float64 `json:"max_chars"`
		Finished *bool    `json:"include_finished"`
	}](req.Args)
	if err != nil {
		return nil, err
	}

	v, ids := s.Session(req.Session), in.IDs
	if in.ID != "" {
		ids = append(ids, in.ID)
	}

	switch {
	case in.List || len(ids) == 0:
		runs, err := s.runs.Overview(ctx, v.name, background.OverviewRequest{ActiveOnly: in.Finished != nil && !*in.Finished})
		if err != nil {
			return nil, err
		}
		return listing{runs, s.asked.runs(v.name)}, nil
	case in.ID != "" && len(in.IDs) > 0:
		return nil, &background.FieldError{Field: "task_ids", Problem: "give either task_id or task_ids"}
	}

	r := background.CheckRequest{IDs: ids, Wait: defaultWait, Until: background.Until(in.Until), Cursor: in.Cursor, MaxChars: background.DefaultChars}
	if in.Wait != nil {
		r.Wait = duration(*in.Wait)
	}
	if in.MaxChars != nil {
		r.MaxChars = int(max(0, min(*in.MaxChars, background.MaxChars)))
	}

	return v.checkRuns(ctx, r)
}

// checkRuns reports on runs in one answer of bounded size. Some text takes more
// room in JSON than it has characters: then it checks again with less room. The
// next check shows the output that this one omits.
func (v Session) checkRuns(ctx context.Context, r background.CheckRequest) (any, error) {
	var waited *float64 // the seconds that the first check waited
	wanted, several, shortened := r.MaxChars, len(r.IDs) > 1, r.Wait > background.MaxWait

	r.MaxPayload = -1

	for room := portion(len(r.IDs)); ; room /= 2 {
		if r.MaxChars = min(wanted, room); r.MaxChars == 0 {
			r.MaxChars = -1 // no output
		}

		checked, err := v.check(ctx, r)
		if err != nil {
			return nil, err
		}
		if waited == nil {
			waited, r.Wait = &checked.Reports[0].WaitedSeconds, 0
		}

		answer := struct {
			Tasks   []report `json:"tasks"`
			Missing string   `json:"error,omitempty"`
		}{Tasks: make([]report, len(checked.Reports))}
		for i, found := range checked.Reports {
			found.WaitedSeconds = *waited
			if answer.Tasks[i], err = v.fit(ctx, found, room, several, shortened); err != nil {
				return nil, err
			}
		}

		if checked.Missing != nil {
			answer.Missing = notFound(checked.Missing)
		}

		var shown any = answer
		if !several {
			shown = answer.Tasks[0]
		}

		data, err := encode(shown)
		if err != nil || utf8.RuneCount(data) <= maxAnswer || room < minRoom {
			return data, err
		}
	}
}

// fit adds to a report what the run's record does not have, and cuts each text to
// the room. It keeps paths only where they lead to more than is shown. Several
// says that the answer has other reports too, shortened that the agent asked for a
// wait that is too long.
func (v Session) fit(ctx context.Context, r background.Report, room int, several, shortened bool) (report, error) {
	out := report{Report: r}
	if r.Status.Terminal() {
		var err error
		if out.Result, err = v.part(ctx, r.TaskID, engine.PartResult); err != nil {
			return out, err
		}
		if out.Content, err = v.part(ctx, r.TaskID, engine.PartContent); err != nil {
			return out, err
		}
		out.excerpt = cut(&out.Result, &out.Content, min(room, maxInline))
	}

	if !r.Done {
		out.Awaited = messages(v.service.asked.open(runKey{v.name, r.TaskID}), room)
	}

	if out.excerpt == (excerpt{}) {
		out.ResultPath = ""
	}
	if r.Output == nil || r.Output.OmittedBytes == 0 {
		out.LogPath = ""
	}
	if r.Error != nil {
		out.Error = &engine.RunError{Kind: r.Error.Kind, Message: clip(r.Error.Message, room)}
	}

	out.Summary = clip(r.Summary, room)

	switch {
	case len(out.Awaited) > 0:
		out.Next = "it waits for your user to answer: tell them; you cannot answer for them"
	case shortened && !r.Done && !r.Unsaved:
		out.Next = fmt.Sprintf("%.0f seconds is the longest wait: check again to go on waiting", background.MaxWait.Seconds())
	case several && out.ResultBytes > 0 && out.ResultBytes <= maxInline:
		out.Next = "check this task alone for the whole result"
	}

	return out, nil
}
