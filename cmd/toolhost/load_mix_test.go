package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

// operation is one thing that clients do, and its weight relative to the others.
type operation struct {
	name   string
	weight int
	do     func(c *loadClient, ctx context.Context) error
}

var loadOperations = []operation{
	{"call", 24, (*loadClient).callSmall},
	{"large call", 3, (*loadClient).callLarge},
	{"call that fails", 3, (*loadClient).callFails},
	{"call out of fuel", 2, (*loadClient).callSpins},
	{"bad request", 2, (*loadClient).badRequest},
	{"spawn", 12, func(c *loadClient, ctx context.Context) error { return c.spawn(ctx, loadQuick) }},
	{"spawn that takes long", 2, func(c *loadClient, ctx context.Context) error { return c.spawn(ctx, loadWorks) }},
	{"spawn and stop", 1, (*loadClient).spawnAndStop},
	{"spawn with a key", 3, (*loadClient).spawnTwice},
	{"wait", 10, (*loadClient).wait},
	{"wait for several", 2, (*loadClient).waitAll},
	{"follow", 8, (*loadClient).followSome},
	{"range", 4, (*loadClient).outputRange},
	{"lists", 8, (*loadClient).lists},
	{"notices", 4, (*loadClient).notices},
	{"schedule", 2, (*loadClient).schedule},
	{"schedule once", 1, (*loadClient).scheduleOnce},
	{"leave", 6, (*loadClient).leave},
	{"MCP call", 12, (*loadClient).mcpCall},
	{"MCP task", 1, (*loadClient).mcpTask},
	{"MCP spawn", 2, (*loadClient).mcpSpawn},
	{"MCP session", 2, (*loadClient).mcpSession},
}

// mix does operations, each drawn by its weight, until ctx ends or, if n is
// not 0, n of them are done.
func (c *loadClient) mix(ctx, last context.Context, n int) error {
	sum := 0
	for _, o := range loadOperations {
		sum += o.weight
	}
	for i := 0; (n == 0 || i < n) && ctx.Err() == nil; i++ {
		k := c.rng.IntN(sum)
		for _, o := range loadOperations {
			if k -= o.weight; k < 0 {
				if err := o.do(c, last); err != nil && !errors.Is(err, errRefused) {
					return fmt.Errorf("%s: %s: %w", c.session, o.name, err)
				}
				break
			}
		}
		for len(c.runs) > 12 { // nobody keeps account of more
			if err := c.waitOldest(last); err != nil {
				return fmt.Errorf("%s: %w", c.session, err)
			}
		}
	}
	return nil
}

// args are arguments no other call has.
func (c *loadClient) args(text string) string {
	c.calls++
	data, _ := json.Marshal(map[string]any{"n": c.calls, "of": c.session, "text": text})
	return string(data)
}

// call calls a tool and reads its result.
func (c *loadClient) call(ctx context.Context, what string, in wire.Call) (r abi.Result, err error) {
	_, err = c.do(ctx, what, "POST", "/v1/calls", in, &r, isOK)
	return r, err
}

func (c *loadClient) callSmall(ctx context.Context) error { return c.callEcho(ctx, "call", "hello") }

func (c *loadClient) callLarge(ctx context.Context) error {
	return c.callEcho(ctx, "call, 64 KiB", strings.Repeat("0123456789abcdef", 4096))
}

func (c *loadClient) callEcho(ctx context.Context, what, text string) error {
	args := c.args(text)
	r, err := c.call(ctx, what, wire.Call{Tool: loadEcho, Args: json.RawMessage(args)})
	if err != nil {
		return err
	}
	return expect(r.Kind == abi.Success && sameJSON(r.Value, args), "%s: %s %s %s", what, r.Kind, r.Error, excerptOf(r.Value))
}

func (c *loadClient) callFails(ctx context.Context) error {
	r, err := c.call(ctx, "call that fails", wire.Call{Tool: loadFails})
	if err != nil {
		return err
	}
	return expect(r.Kind == abi.ToolError && r.Error == loadGone, "%s %s", r.Kind, r.Error)
}

func (c *loadClient) callSpins(ctx context.Context) error {
	r, err := c.call(ctx, "call out of fuel", wire.Call{Tool: loadSpins, Limits: wire.CallLimits{Fuel: 1_000_000}})
	if err != nil {
		return err
	}
	return expect(r.Kind == abi.LimitReached && r.Limit == abi.LimitFuel, "%s %s %s", r.Kind, r.Limit, r.Error)
}

// badRequest asks for what is refused, each with its own code.
func (c *loadClient) badRequest(ctx context.Context) error {
	for _, bad := range []struct {
		method, path string
		in           any
		status       int
		code         wire.Code
	}{
		{"POST", "/v1/runs", map[string]any{"tool": loadQuick, "tittle": ""}, http.StatusBadRequest, wire.CodeInvalid},
		{"POST", "/v1/calls", wire.Call{Tool: "nothing"}, http.StatusNotFound, wire.CodeNotFound},
		{"POST", "/v1/runs", wire.Spawn{Tool: loadEcho}, http.StatusUnprocessableEntity, wire.CodeUnsupported},
		{"GET", "/v1/runs/bg_" + strings.Repeat("a", 26), nil, http.StatusNotFound, wire.CodeNotFound},
	} {
		var p wire.Problem
		if _, err := c.do(ctx, "bad request", bad.method, bad.path, bad.in, &p, []int{bad.status}); err != nil {
			return err
		}
		if err := expect(p.Code == bad.code, "%s %s: %+v", bad.method, bad.path, p); err != nil {
			return err
		}
	}
	return nil
}

// start spawns a tool and keeps account of the run.
func (c *loadClient) start(ctx context.Context, tool string) (*loadRun, error) {
	r := &loadRun{tool: tool, args: c.args(""), watched: c.watched != nil}
	var run wire.Run
	_, err := c.do(ctx, "spawn", "POST", "/v1/runs", wire.Spawn{Tool: tool, Args: json.RawMessage(r.args), TimeoutSeconds: 3600}, &run, isCreated)
	if err != nil {
		return nil, err
	}
	r.id = run.TaskID
	return c.told(r), expect(run.Session == c.session && !run.Done && !run.Reused, "spawned: %+v", run)
}

func (c *loadClient) spawn(ctx context.Context, tool string) error {
	_, err := c.start(ctx, tool)
	return err
}

// spawnAndStop spawns what does not end, looks at it, and stops it.
func (c *loadClient) spawnAndStop(ctx context.Context) error {
	r, err := c.start(ctx, loadSleep)
	if err != nil {
		return err
	}
	if c.rng.IntN(2) == 0 {
		if _, err := c.do(ctx, "wait in vain", "GET", "/v1/runs/"+r.id+"?wait=100ms&tail=1000", nil, nil, isOK); err != nil {
			return err
		}
	}
	return c.stop(ctx, r, c.rng.IntN(2) == 0)
}

func (c *loadClient) stop(ctx context.Context, r *loadRun, force bool) error {
	r.stopped = true
	var stopped wire.Stopped
	if _, err := c.do(ctx, "stop", "POST", "/v1/runs/"+r.id+"/stop", wire.Stop{Force: force, Reason: "enough"}, &stopped, isOK); err != nil {
		return err
	}
	states := 0
	for _, state := range []bool{stopped.Stopped, stopped.AlreadyFinished, stopped.Stopping} {
		if state {
			states++
		}
	}
	return expect(states == 1 && stopped.TaskID == r.id, "stopped: %+v", stopped)
}

// spawnTwice sends the same spawn twice at once, and once more: one run comes of
// it.
func (c *loadClient) spawnTwice(ctx context.Context) error {
	c.keys++
	r := &loadRun{tool: loadQuick, args: c.args(""), watched: c.watched != nil}
	in := wire.Spawn{Tool: r.tool, Args: json.RawMessage(r.args)}
	key := fmt.Sprintf("%s-%d", c.session, c.keys)
	var runs [3]wire.Run
	var errs [3]error
	send := func(c *loadClient, i int) {
		_, errs[i] = c.do(ctx, "spawn with a key", "POST", "/v1/runs", in, &runs[i],
			[]int{http.StatusOK, http.StatusCreated}, wire.KeyHeader, key)
	}
	other := &loadClient{base: c.base, session: c.session, http: c.http, figures: newLatencies()}
	var both sync.WaitGroup
	both.Go(func() { send(other, 0) })
	send(c, 1)
	both.Wait()
	c.figures.merge(other.figures)
	send(c, 2)
	made := 0
	for i, run := range runs {
		if errors.Is(errs[i], errRefused) {
			continue
		}
		if errs[i] != nil {
			return errs[i]
		}
		if r.id == "" {
			r.id = run.TaskID
			c.told(r)
		}
		if !run.Reused {
			made++
		}
		if run.TaskID != r.id || made > 1 {
			return fmt.Errorf("key %s gave runs %s and %s, %d of them made", key, r.id, run.TaskID, made)
		}
	}
	return expect(r.id == "" || made == 1, "key %s: no run was made, and %s is there", key, r.id)
}

// wait waits a moment for one of the runs, or looks at the end of it.
func (c *loadClient) wait(ctx context.Context) error {
	r := c.pick(mayEnd)
	if r == nil {
		return nil
	}
	var run wire.Run
	if _, err := c.do(ctx, "wait", "GET", "/v1/runs/"+r.id+"?wait=2s&tail=2000", nil, &run, isOK); err != nil {
		return err
	}
	if !run.Done {
		return expect(run.TaskID == r.id, "%+v", run)
	}
	return c.verify(ctx, r)
}

// waitOldest waits for the run that has been there longest.
func (c *loadClient) waitOldest(ctx context.Context) error {
	r := c.runs[0]
	if !mayEnd(r) {
		if err := c.stop(ctx, r, true); err != nil {
			return err
		}
	}
	return c.verify(ctx, r)
}

// waitAll waits for all of some runs.
func (c *loadClient) waitAll(ctx context.Context) error {
	var b strings.Builder
	n := 0
	for _, r := range c.runs {
		if mayEnd(r) {
			b.WriteString("&id=" + r.id)
			n++
		}
	}
	if n == 0 {
		return nil
	}
	var runs wire.Runs
	if _, err := c.do(ctx, "wait for several", "GET", "/v1/runs?wait=3s&until=all"+b.String(), nil, &runs, isOK); err != nil {
		return err
	}
	return expect(len(runs.Runs) == n && len(runs.Missing) == 0, "%d of %d runs, missing %v", len(runs.Runs), n, runs.Missing)
}

func (c *loadClient) followSome(ctx context.Context) error {
	r := c.pick(mayEnd)
	if r == nil {
		return nil
	}
	return c.follow(ctx, r)
}

// outputRange reads some bytes of the output of a run.
func (c *loadClient) outputRange(ctx context.Context) error {
	r := c.pick(func(r *loadRun) bool { return !r.stopped })
	if r == nil {
		return nil
	}
	whole := loadOutput[r.tool]
	from := c.rng.IntN(len(whole))
	to := from + c.rng.IntN(4096)
	a, err := c.do(ctx, "range", "GET", "/v1/runs/"+r.id+"/output", nil, nil,
		[]int{http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable}, "Range", fmt.Sprintf("bytes=%d-%d", from, to))
	if err != nil || a.status != http.StatusPartialContent {
		return err
	}
	return expect(len(a.body) > 0 && len(a.body) <= to-from+1 && strings.HasPrefix(whole[from:], string(a.body)),
		"bytes %d to %d of the output of %s: %s", from, to, r.id, excerptOf(a.body))
}

// lists reads what is small and asked for often.
func (c *loadClient) lists(ctx context.Context) error {
	var runs wire.Runs
	if _, err := c.do(ctx, "list", "GET", "/v1/runs?limit=20", nil, &runs, isOK); err != nil {
		return err
	}
	for _, run := range runs.Runs {
		if run.Session != c.session {
			return fmt.Errorf("a run of session %s in %s", run.Session, c.session)
		}
	}
	var err error
	switch c.rng.IntN(4) {
	case 0:
		_, err = c.do(ctx, "tools", "GET", "/v1/tools", nil, nil, isOK)
	case 1:
		_, err = c.do(ctx, "session", "GET", "/v1/session", nil, nil, isOK)
	case 2:
		_, err = c.do(ctx, "stats", "GET", "/v1/stats", nil, nil, isOK)
	}
	return err
}

// notices reads the notices, of which none may be one that was taken, and takes
// some.
func (c *loadClient) notices(ctx context.Context) error {
	var told wire.Notices
	if _, err := c.do(ctx, "notices", "GET", "/v1/notices", nil, &told, isOK); err != nil {
		return err
	}
	var take wire.Seen
	for _, n := range told.Notices {
		if c.acked[n.TaskID] {
			return fmt.Errorf("the notice of %s was taken, and is told again", n.TaskID)
		}
		if c.rng.IntN(4) > 0 {
			take.TaskIDs = append(take.TaskIDs, n.TaskID)
		}
	}
	if len(take.TaskIDs) == 0 {
		return nil
	}
	if _, err := c.do(ctx, "take notices", "POST", "/v1/notices/ack", take, nil, []int{http.StatusNoContent}); err != nil {
		return err
	}
	for _, id := range take.TaskIDs {
		c.acked[id] = true
	}
	return nil
}

// schedule makes a schedule that does not fire for long, disables it, and removes it.
func (c *loadClient) schedule(ctx context.Context) error {
	var s wire.Schedule
	in := wire.NewSchedule{Spawn: wire.Spawn{Tool: loadQuick}, Cron: "0 4 29 2 *", Timezone: "Europe/Berlin"}
	if _, err := c.do(ctx, "schedule", "POST", "/v1/schedules", in, &s, isCreated); err != nil {
		return err
	}
	if _, err := c.do(ctx, "list", "GET", "/v1/schedules?enabled=true", nil, nil, isOK); err != nil {
		return err
	}
	if _, err := c.do(ctx, "unschedule", "POST", "/v1/schedules/"+s.ScheduleID+"/disable", nil, &s, isOK); err != nil {
		return err
	}
	if _, err := c.do(ctx, "remove schedule", "DELETE", "/v1/schedules/"+s.ScheduleID, nil, &s, isOK); err != nil {
		return err
	}
	return expect(!s.Enabled && s.TriggerCount == 0, "unscheduled: %+v", s)
}

// scheduleOnce makes a schedule that fires soon, once, and finds its run.
func (c *loadClient) scheduleOnce(ctx context.Context) error {
	var s wire.Schedule
	r := &loadRun{tool: loadQuick, args: c.args("")}
	in := wire.NewSchedule{Spawn: wire.Spawn{Tool: r.tool, Args: json.RawMessage(r.args)}, At: time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)}
	a, err := c.do(ctx, "schedule", "POST", "/v1/schedules", in, nil, []int{http.StatusCreated, http.StatusBadRequest})
	if err != nil {
		return err
	}
	if a.status == http.StatusBadRequest { // it took longer than that to get there
		return expect(strings.Contains(string(a.body), "is in the past"), "%s", a.body)
	}
	if err := json.Unmarshal(a.body, &s); err != nil {
		return err
	}
	for s.LastTaskID == "" {
		if _, err := c.do(ctx, "look at a schedule", "GET", "/v1/schedules/"+s.ScheduleID, nil, &s, isOK); err != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
	r.id = s.LastTaskID
	c.told(r)
	return expect(s.TriggerCount == 1 && !s.Enabled, "fired: %+v", s)
}

// leave asks for something that takes long and goes away before it is answered.
func (c *loadClient) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.rng.IntN(30_000))*time.Microsecond)
	defer cancel()
	method, path, in, headers := "POST", "/v1/calls", any(wire.Call{Tool: loadTardy}), []string(nil)
	if r := c.pick(anyRun); r != nil {
		switch c.rng.IntN(3) {
		case 0:
			method, path, in = "GET", "/v1/runs/"+r.id+"?wait=1m", nil
		case 1:
			method, path, in, headers = "GET", "/v1/runs/"+r.id+"/output", nil, []string{"Accept", "text/event-stream"}
		}
	}
	_, err := c.send(ctx, method, path, in, headers...)
	var timed interface{ Timeout() bool } // a connection may see the deadline before the context
	if ctx.Err() != nil || err == nil || errors.As(err, &timed) && timed.Timeout() {
		return nil
	}
	return err
}
