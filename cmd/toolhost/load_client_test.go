package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/server/wire"
)

// loadClient is one client of the load run: a session, connections of its own,
// and what it was told, which all later answers have to agree with. It is used
// by one goroutine, but for its events.
type loadClient struct {
	base    string
	session string
	rng     *rand.Rand
	http    *http.Client
	figures *latencies

	runs    []*loadRun           // known, and not yet seen to have ended well
	ended   map[string]*loadRun  // the others
	acked   map[string]bool      // whose notice was taken
	shown   map[string]bool      // whose notice came with a result; the next MCP request takes it
	keys    int                  // idempotency keys used
	calls   int                  // calls made, which makes their arguments differ
	watched map[string]*sighting // by run: what was seen of it as an event; nil if none are followed
	mu      sync.Mutex           // guards watched and missed
	missed  bool
}

// loadRun is a run that a client knows of.
type loadRun struct {
	id, tool, args string
	stopped        bool // its end was asked for
	taken          bool // its notice may have been taken by a look of the agent's tools
	watched        bool // events were being followed when it was spawned
}

// sighting is what the events said of a run.
type sighting struct{ queued, started, ended bool }

func newLoadClient(base string, n int, seed uint64) *loadClient {
	return &loadClient{
		base: base, session: fmt.Sprintf("client-%03d", n), rng: rand.New(rand.NewPCG(seed, uint64(n))),
		http:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}},
		figures: newLatencies(),
		ended:   map[string]*loadRun{}, acked: map[string]bool{}, shown: map[string]bool{}, watched: map[string]*sighting{},
	}
}

// loadAnswer is an answer that was read to its end.
type loadAnswer struct {
	status int
	header http.Header
	body   []byte
}

// errRefused is that a request was refused with a limit that has a name.
var errRefused = errors.New("refused: a limit is reached")

// open sends a request and returns the answer as it begins.
func (c *loadClient) open(ctx context.Context, method, path string, in any, headers ...string) (*http.Response, error) {
	body := new(bytes.Buffer)
	if in != nil {
		if err := json.NewEncoder(body).Encode(in); err != nil {
			return nil, err
		}
		headers = append(headers, "Content-Type", "application/json")
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	headers = append(headers, wire.SessionHeader, c.session)
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return c.http.Do(req)
}

// send sends a request and reads the answer.
func (c *loadClient) send(ctx context.Context, method, path string, in any, headers ...string) (loadAnswer, error) {
	resp, err := c.open(ctx, method, path, in, headers...)
	if err != nil {
		return loadAnswer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return loadAnswer{resp.StatusCode, resp.Header, body}, err
}

// do sends a request that has to be answered with one of some statuses, and
// reads the answer into out, if that is not nil. The time it took is kept under
// the name of what it is. That a limit was reached is errRefused.
func (c *loadClient) do(ctx context.Context, what, method, path string, in, out any, statuses []int, headers ...string) (loadAnswer, error) {
	began := time.Now()
	a, err := c.send(ctx, method, path, in, headers...)
	if err != nil {
		return a, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if slices.Contains(statuses, a.status) {
		c.figures.add(what, time.Since(began))
		if out == nil {
			return a, nil
		}
		if err := json.Unmarshal(a.body, out); err != nil {
			return a, fmt.Errorf("%s %s: %w: %s", method, path, err, excerptOf(a.body))
		}
		return a, nil
	}
	var p wire.Problem
	if json.Unmarshal(a.body, &p) == nil && p.Code == wire.CodeLimit && p.Max > 0 && p.Detail != "" {
		c.figures.refuse(what)
		return a, errRefused
	}
	return a, fmt.Errorf("%s %s: status %d: %s", method, path, a.status, excerptOf(a.body))
}

var (
	isOK      = []int{http.StatusOK}
	isCreated = []int{http.StatusCreated}
)

func excerptOf(body []byte) string {
	return string(body[:min(len(body), 300)])
}

// expect is that something has to hold of an answer.
func expect(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf("unexpected: "+format, args...)
}

// pick returns one of the runs that are not known to have ended, or nil.
func (c *loadClient) pick(fits func(*loadRun) bool) *loadRun {
	var of []*loadRun
	for _, r := range c.runs {
		if fits(r) {
			of = append(of, r)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return of[c.rng.IntN(len(of))]
}

// mayEnd are runs that end by themselves, or were stopped.
func mayEnd(r *loadRun) bool { return r.stopped || r.tool != loadSleep }

func anyRun(*loadRun) bool { return true }

// told begins to track a run.
func (c *loadClient) told(r *loadRun) *loadRun {
	c.runs = append(c.runs, r)
	return r
}

// verify waits for the end of a run, and checks that everything reported about it
// is as requested.
func (c *loadClient) verify(ctx context.Context, r *loadRun) error {
	var run wire.Run
	for !run.Done {
		if _, err := c.do(ctx, "wait for the end", "GET", "/v1/runs/"+r.id+"?wait=30s", nil, &run, isOK); err != nil {
			return err
		}
	}
	a, err := c.do(ctx, "output.log", "GET", "/v1/runs/"+r.id+"/artifacts/output.log", nil, nil, isOK)
	if err != nil {
		return err
	}
	if err := r.check(run, string(a.body)); err != nil {
		return err
	}
	var kept struct {
		TaskID string          `json:"task_id"`
		Status wire.Status     `json:"status"`
		Result json.RawMessage `json:"result"`
	}
	if _, err := c.do(ctx, "result.json", "GET", "/v1/runs/"+r.id+"/artifacts/result.json", nil, &kept, isOK); err != nil {
		return err
	}
	c.runs = slices.DeleteFunc(c.runs, func(other *loadRun) bool { return other == r })
	c.ended[r.id] = r
	return expect(kept.TaskID == r.id && kept.Status == run.Status, "result.json of %s: %+v", r.id, kept)
}

// check compares the end of a run with what was asked for.
func (r *loadRun) check(run wire.Run, log string) error {
	whole := loadOutput[r.tool]
	attempt := 1
	if r.stopped && run.Status == wire.StatusCanceled && run.StartedAt.IsZero() {
		attempt = 0 // it was stopped before it started
	}
	switch {
	case run.Attempt != attempt || run.ArtifactError != "" || run.Tool != r.tool:
		return fmt.Errorf("run %s: %+v", r.id, run)
	case run.Status == wire.StatusSucceeded && sameJSON(run.Result, r.args):
		if log == whole || r.stopped && r.tool == loadWorks { // asked to stop, it writes on without its sleep
			return nil
		}
	case run.Status == wire.StatusCanceled && r.stopped:
		said, _, _ := strings.Cut(log, "[system] ")
		if said = strings.TrimSuffix(said, "\n"); strings.HasPrefix(whole, said) {
			return nil
		}
	}
	return fmt.Errorf("run %s of %s, stopped %t, is %s, error %+v, result %s, output of %d bytes: %s",
		r.id, r.tool, r.stopped, run.Status, run.Error, run.Result, len(log), excerptOf([]byte(log)))
}

func sameJSON(got json.RawMessage, want string) bool {
	var a bytes.Buffer
	return json.Compact(&a, got) == nil && a.String() == want
}

// finish stops the runs that would not end, verifies all runs, and checks that the
// summary of the session agrees with them.
func (c *loadClient) finish(ctx context.Context) error {
	for _, r := range slices.Clone(c.runs) {
		if !mayEnd(r) {
			if err := c.stop(ctx, r, true); err != nil {
				return err
			}
		}
	}
	for _, r := range slices.Clone(c.runs) {
		if err := c.verify(ctx, r); err != nil {
			return err
		}
	}
	var active wire.Runs
	if _, err := c.do(ctx, "list", "GET", "/v1/runs?active=true", nil, &active, isOK); err != nil {
		return err
	}
	for _, run := range active.Runs { // of calls whose client left when they were tasks already
		if _, err := c.do(ctx, "stop", "POST", "/v1/runs/"+run.TaskID+"/stop", wire.Stop{Force: true}, nil, isOK); err != nil {
			return err
		}
	}
	return c.checkNotices(ctx)
}

// checkNotices compares the delivered notices with the runs that ended: each
// is delivered until it is acknowledged, and then never again.
func (c *loadClient) checkNotices(ctx context.Context) error {
	var told wire.Notices
	if _, err := c.do(ctx, "notices", "GET", "/v1/notices?limit=200", nil, &told, isOK); err != nil {
		return err
	}
	pending := map[string]bool{}
	for _, n := range told.Notices {
		if c.acked[n.TaskID] {
			return fmt.Errorf("the notice of %s was taken, and is told again", n.TaskID)
		}
		pending[n.TaskID] = true
	}
	for id, r := range c.ended {
		if told.More == 0 && !r.taken && !pending[id] && !c.acked[id] && !c.shown[id] {
			return fmt.Errorf("the notice of %s is lost", id)
		}
	}
	return nil
}
