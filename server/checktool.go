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
)

// The waits and the sizes of check_background.
const (
	defaultWait = 60 * time.Second // if ids are named
	maxAnswer   = 50_000           // characters of one answer
	maxInline   = 8 << 10          // bytes of a result that is shown whole
	preview     = 1 << 10          // bytes of one that is not
	envelope    = 400              // characters of a report beside its output and its result
	minRoom     = 32               // characters; nothing is cut below it
)

// portion is what the output and the result of each of n runs may take of an
// answer.
func portion(n int) int { return (maxAnswer/n - envelope) / 2 }

// excerpt stands for a result, or content beside it, that is too large to show.
type excerpt struct {
	ResultBytes   int    `json:"result_bytes,omitempty"`
	ResultPreview string `json:"result_preview,omitempty"` // its beginning
	ContentBytes  int    `json:"content_bytes,omitempty"`
}

// cut takes a result and content of more than so many bytes away and returns
// what stands for them.
func cut(result, content *json.RawMessage, most int) (e excerpt) {
	if len(*result) > most {
		e.ResultBytes, e.ResultPreview = len(*result), strings.ToValidUTF8(string((*result)[:min(preview, most)]), "")
		*result = nil
	}
	if len(*result)+len(*content) > most {
		e.ContentBytes = len(*content)
		*content = nil
	}
	return e
}

// payload reads the result and the content of an ended run into a report, of no
// more than so many bytes, and returns what stands for the rest.
func (s *Service) payload(ctx context.Context, session string, r *background.Report, most int) (e excerpt, err error) {
	if !r.Status.Terminal() {
		return e, nil
	}
	if r.Result, err = s.part(ctx, session, r.TaskID, background.PartResult); err == nil {
		r.Content, err = s.part(ctx, session, r.TaskID, background.PartContent)
	}
	return cut(&r.Result, &r.Content, most), err
}

// part reads a part of a run's payload: none if its record is gone.
func (s *Service) part(ctx context.Context, session, id string, part background.Part) (json.RawMessage, error) {
	data, err := s.runs.Payload(ctx, session, id, part)
	if errors.Is(err, background.ErrNotFound) {
		return nil, nil
	}
	return data, err
}

// whole reports whether nothing was cut.
func (e excerpt) whole() bool { return e.ResultBytes == 0 && e.ContentBytes == 0 }

// report is what check_background answers of one run.
type report struct {
	background.Report
	excerpt
	Awaited []string `json:"waiting_for_input,omitempty"` // what its user is asked
}

// listing is what check_background answers of all runs.
type listing struct {
	background.Overview
	Awaiting []string `json:"waiting_for_input,omitempty"` // runs whose user is asked something
}

// checkArgs are the arguments of check_background.
type checkArgs struct {
	ID       string   `json:"task_id"`
	IDs      []string `json:"task_ids"`
	List     bool     `json:"list"`
	Wait     *float64 `json:"wait_seconds"`
	Until    string   `json:"until"`
	Cursor   string   `json:"cursor"`
	MaxChars *float64 `json:"max_chars"`
	Finished *bool    `json:"include_finished"`
}

// check reports on runs, or lists them.
func check(ctx context.Context, s *Service, req Request) (any, error) {
	in, err := decode[checkArgs](req.Args)
	if err != nil {
		return nil, err
	}
	ids := in.IDs
	if in.ID != "" {
		ids = append(ids, in.ID)
	}

	v := s.Session(req.Session)
	switch {
	case in.List || len(ids) == 0:
		return listRuns(ctx, v, background.OverviewRequest{ActiveOnly: in.Finished != nil && !*in.Finished})
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
	return checkRuns(ctx, v, r)
}

func listRuns(ctx context.Context, v Session, r background.OverviewRequest) (any, error) {
	runs, err := v.service.runs.Overview(ctx, v.name, r)
	if err != nil {
		return nil, err
	}
	awaiting, err := v.awaiting(ctx)
	return listing{runs, awaiting}, err
}

// checkRuns looks at runs and fits what there is to say into one answer. Where
// text takes more room in JSON than it has characters, it looks again for less:
// what is not shown, the next check shows.
func checkRuns(ctx context.Context, v Session, r background.CheckRequest) (any, error) {
	var excerpts []excerpt
	wanted, shortened := r.MaxChars, r.Wait > background.MaxWait
	var waited *background.CheckResult
	for room := portion(len(r.IDs)); ; room /= 2 {
		if r.MaxChars = min(wanted, room); r.MaxChars == 0 {
			r.MaxChars = -1 // none at all
		}
		r.MaxPayload = -1
		checked, err := v.check(ctx, r)
		if err != nil {
			return nil, err
		}
		excerpts = make([]excerpt, len(checked.Reports))
		for i := range checked.Reports {
			if excerpts[i], err = v.service.payload(ctx, v.name, &checked.Reports[i], min(room, maxInline)); err != nil {
				return nil, err
			}
		}

		if waited == nil {
			waited = &checked
		}
		answer, err := encode(v.service.answers(checked, excerpts, len(r.IDs), room, shortened, waited.Reports))
		if err != nil || utf8.RuneCount(answer) <= maxAnswer || room < minRoom {
			return answer, err
		}
		r.Wait = 0
	}
}

// nextAwaited is advice on a run that waits for its user.
const nextAwaited = "it waits for your user to answer: tell them; you cannot answer for them"

// answers fits the reports on n runs, and what stands for their results, into so
// much room for each. Shortened says
// that the wait asked for was longer than a wait can be; waited are the reports
// that tell how long it was.
func (s *Service) answers(checked background.CheckResult, excerpts []excerpt, n, room int, shortened bool, waited []background.Report) any {
	reports := make([]report, len(checked.Reports))
	for i, r := range checked.Reports {
		r.WaitedSeconds = waited[min(i, len(waited)-1)].WaitedSeconds
		reports[i] = fit(r, excerpts[i], n > 1, room)
		if !r.Done {
			reports[i].Awaited = s.asked.messages(r.TaskID, room)
		}
		switch {
		case len(reports[i].Awaited) > 0:
			reports[i].Next = nextAwaited
		case shortened && !r.Done && !r.Unsaved:
			reports[i].Next = fmt.Sprintf("%.0f seconds is the longest wait: check again to go on waiting", background.MaxWait.Seconds())
		}
	}
	if n == 1 {
		return reports[0]
	}
	answer := struct {
		Tasks   []report `json:"tasks"`
		Missing string   `json:"error,omitempty"`
	}{Tasks: reports}
	if checked.Missing != nil {
		answer.Missing = notFound(checked.Missing)
	}
	return answer
}

// fit cuts a report to its room. Paths are told where they lead to more than
// was shown.
func fit(r background.Report, e excerpt, among bool, room int) report {
	out := report{Report: r, excerpt: e}
	if out.whole() {
		out.ResultPath = ""
	}
	if r.Output == nil || r.Output.OmittedBytes == 0 {
		out.LogPath = ""
	}
	if r.Error != nil {
		out.Error = &background.RunError{Kind: r.Error.Kind, Message: clip(r.Error.Message, room)}
	}
	out.Summary = clip(r.Summary, room)
	if among && out.ResultBytes > 0 && out.ResultBytes <= maxInline {
		out.Next = "check this task alone for the whole result"
	}
	return out
}
