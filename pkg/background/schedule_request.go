package background

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// A ScheduleRequest says what to run, and when. Tool and exactly one of Cron
// and At are required.
//
// Args are stored as they are, so that later runs can have them: secrets must
// not be in them, and there is no [SpawnRequest.Stored] to leave them out.
type ScheduleRequest struct {
	Tool    string          // trimmed
	Version string          // of the tool, kept with each run for Config.Readmit; may be empty
	Args    json.RawMessage // any JSON value; nil: {}
	Title   string          // at most 120 characters; "": "Background {tool}"
	By      string          // who asks, kept with each run; "": the session's agent
	Silent  bool            // no notices of the runs' ends are made
	Timeout time.Duration   // hard deadline of a run; 0: Config.Timeout; at most Config.MaxTimeout

	Cron     string    // five fields; "": none. See [Schedule]
	At       time.Time // in the future, but not by more than 10 years; zero: none
	Timezone string    // an IANA name, trimmed; "": UTC. Cron is read by its clock
	Overlap  Overlap   // what a firing does while a run of an earlier one is active; "": OverlapSkip
}

// Plan checks a request as [Manager.Schedule] does, but for room, and returns
// the schedule that would be made of it, which has no ID. It stores nothing.
func (m *Manager) Plan(session string, req ScheduleRequest) (Schedule, error) {
	s, err := m.newSchedule(session, req, m.wall())
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule: %w", err)
	}
	s.ID = ""
	return s, nil
}

// newSchedule makes the record of a schedule, or says what is wrong with the
// request.
func (m *Manager) newSchedule(session string, req ScheduleRequest, now time.Time) (Schedule, error) {
	run, err := m.newRun(session, SpawnRequest{
		Tool: req.Tool, Version: req.Version, Args: req.Args, Title: req.Title, By: req.By, Silent: req.Silent, Timeout: req.Timeout,
	})
	if err != nil {
		return Schedule{}, err
	}
	s := Schedule{
		ID: schedulePrefix + strings.TrimPrefix(run.ID, runPrefix), Session: session, Tool: run.Tool, Version: run.Version, Args: run.Args,
		Title: run.Title, By: run.By, SignalOnCompletion: run.SignalOnCompletion, Timeout: run.Timeout, CreatedAt: now.UTC(),
		Timezone: cmp.Or(strings.TrimSpace(req.Timezone), "UTC"), Overlap: cmp.Or(req.Overlap, OverlapSkip), Enabled: true,
	}
	switch {
	case s.Overlap != OverlapSkip && s.Overlap != OverlapQueue && s.Overlap != OverlapCancel:
		return Schedule{}, &FieldError{"overlap", fmt.Sprintf("must be %s, %s or %s", OverlapSkip, OverlapQueue, OverlapCancel)}
	case len(req.Cron) > maxCron:
		return Schedule{}, cronError("longer than %d bytes", maxCron)
	}
	s.Cron = strings.Join(strings.Fields(req.Cron), " ")
	switch {
	case s.Cron == "" && req.At.IsZero():
		return Schedule{}, &FieldError{"schedule", "must include exactly one of cron_expression (recurring) or scheduled_at (one-shot)"}
	case s.Cron != "" && !req.At.IsZero():
		return Schedule{}, &FieldError{"schedule", "must not include both cron_expression and scheduled_at; provide exactly one"}
	case s.Cron == "":
		err = s.once(req.At.UTC().Round(0), now)
	default:
		err = s.recurring(m.cfg.MinInterval, now)
	}
	return s, err
}

// once makes s a one-shot.
func (s *Schedule) once(at, now time.Time) error {
	if _, err := loadZone(s.Timezone); err != nil {
		return err
	}
	switch {
	case !at.After(now):
		return &FieldError{"scheduled_at", fmt.Sprintf("%s is in the past; it is %s now", at.Format(time.RFC3339), now.UTC().Format(time.RFC3339))}
	case at.After(now.AddDate(farthest, 0, 0)):
		return &FieldError{"scheduled_at", fmt.Sprintf("%s is more than %d years from now", at.Format(time.RFC3339), farthest)}
	}
	s.At, s.NextAt = at, at
	return nil
}

// recurring checks the cron expression of s, and sets when it fires first.
func (s *Schedule) recurring(least time.Duration, now time.Time) error {
	spec, err := s.spec()
	if err != nil {
		return err
	}
	first, ok := spec.next(now)
	if !ok {
		return cronError("%q does not fire within %d years", s.Cron, farthest)
	}
	if closest := spec.closest(now, least); closest < least {
		return cronError("%q fires again after %v at times; the least is %v", s.Cron, closest, least)
	}
	s.NextAt = first
	return nil
}

// spec reads the cron expression of s.
func (s *Schedule) spec() (cronSpec, error) {
	zone, err := loadZone(s.Timezone)
	if err != nil {
		return cronSpec{}, err
	}
	return parseCron(s.Cron, zone)
}
