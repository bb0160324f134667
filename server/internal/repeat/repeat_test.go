package repeat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/runs"
)

const alice = "alice"

// earlier has one run of an earlier request, which it follows too.
type earlier struct {
	run      engine.Run
	key      string
	keyErr   error
	follow   error
	remove   error
	asked    background.SpawnRequest // by WithKey
	followed []string
	removed  []string
}

func (e *earlier) Get(_ context.Context, session, id string) (engine.Run, error) {
	if e.run.ID != id || e.run.Session != session {
		return engine.Run{}, engine.ErrNotFound
	}
	return e.run, nil
}

func (e *earlier) WithKey(_ context.Context, session string, req background.SpawnRequest) (engine.Run, bool, error) {
	e.asked = req
	return e.run, e.keyErr == nil && e.run.Session == session && e.key == req.IdempotencyKey, e.keyErr
}

func (e *earlier) Remove(_ context.Context, _, id string) error {
	e.removed = append(e.removed, id)
	return e.remove
}

func (e *earlier) Follow(_ context.Context, c runs.Waiter, run engine.Run, wait time.Duration) (abi.Result, error) {
	c.Note.Run, c.Note.Followed = run.ID, true
	e.followed = append(e.followed, run.ID+" for "+wait.String())
	return abi.Result{Kind: abi.Success, Value: json.RawMessage(`"once"`)}, e.follow
}

// backend is a tool whose argument secret is secret.
type backend struct{ catalog.Backend }

func (backend) PublicArgs(args json.RawMessage) (json.RawMessage, bool) {
	if bytes.Contains(args, []byte("secret")) {
		return json.RawMessage(`{}`), true
	}
	return args, false
}

// again returns a repeat of a call with the key k, and the call that repeats it.
func again(resumes string) (*earlier, Repeater, Call) {
	e := &earlier{run: engine.Run{ID: "task_1", Session: alice, Tool: "send"}, key: "k"}
	c := Call{
		Waiter: runs.Waiter{Session: alice, Patience: time.Minute, Note: &record.Note{}},
		Tool:   &catalog.Tool{Name: "send", Backend: backend{}}, Args: json.RawMessage(`{"to":"bob"}`), Resumes: resumes,
	}
	return e, Repeater{Runs: e, Follower: e, Log: slog.New(slog.DiscardHandler)}, c
}

func TestCheckKey(t *testing.T) {
	require.NoError(t, CheckKey(alice, strings.Repeat("ä", MaxKey)))
	for _, err := range []error{CheckKey("", "k"), CheckKey(alice, strings.Repeat("k", MaxKey+1))} {
		var field *background.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "idempotency_key", field.Field)
	}
}

func TestAKeyOfAnEarlierRequest(t *testing.T) {
	e, p, c := again("")
	c.Key = "k"
	r, found, err := p.Answer(t.Context(), c)
	require.NoError(t, err)
	require.True(t, found)
	require.JSONEq(t, `"once"`, string(r.Value))
	require.Equal(t, []string{"task_1 for 1m0s"}, e.followed)
	require.True(t, c.Note.Repeat, "the session needs no notice of the end")
	require.Equal(t, background.SpawnRequest{Tool: "send", Args: c.Args, IdempotencyKey: "k"}, e.asked)
}

func TestANewKey(t *testing.T) {
	e, p, c := again("")
	c.Key = "another"
	_, found, err := p.Answer(t.Context(), c)
	require.NoError(t, err)
	require.False(t, found)
	require.Empty(t, e.followed)
	require.False(t, c.Note.Repeat)
}

func TestSecretArgumentsAreComparedAsStored(t *testing.T) {
	e, p, c := again("")
	c.Key, c.Args = "k", json.RawMessage(`{"secret":"x"}`)
	_, found, err := p.Answer(t.Context(), c)
	require.NoError(t, err)
	require.True(t, found)
	require.JSONEq(t, `{}`, string(e.asked.Stored))
}

func TestAKeyWithOtherArguments(t *testing.T) {
	e, p, c := again("")
	c.Key, e.keyErr = "k", background.ErrKeyReused
	r, found, err := p.Answer(t.Context(), c)
	require.True(t, found, "the call is not made")
	require.ErrorIs(t, err, background.ErrKeyReused)
	require.Equal(t, abi.ToolError, r.Kind)
	require.NotEmpty(t, r.Error)
}

func TestResume(t *testing.T) {
	e, p, c := again("task_1")
	_, found, err := p.Answer(t.Context(), c)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, []string{"task_1 for 1m0s"}, e.followed)
	require.False(t, c.Note.Repeat, "it is the same call")
}

// A run that cannot be resumed lets the call start over, with its key if it has one.
func TestResumeStartsOver(t *testing.T) {
	for name, change := range map[string]func(e *earlier, c *Call){
		"removed":         func(_ *earlier, c *Call) { c.Resumes = "task_2" },
		"another session": func(e *earlier, _ *Call) { e.run.Session = "bob" },
		"another tool":    func(e *earlier, _ *Call) { e.run.Tool = "drop" },
		"ticket": func(e *earlier, _ *Call) {
			e.run.Held, e.run.Secret, e.run.Origin = approval.HeldFor, true, engine.OriginParked
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, p, c := again("task_1")
			change(e, &c)
			_, found, err := p.Answer(t.Context(), c)
			require.NoError(t, err)
			require.False(t, found)
			require.Empty(t, e.followed)
		})
	}

	t.Run("outdated", func(t *testing.T) {
		e, p, c := again("task_1")
		e.follow = approval.ErrOutdated
		_, found, err := p.Answer(t.Context(), c)
		require.NoError(t, err)
		require.False(t, found)
		require.Zero(t, *c.Note, "the record is of the call that is made")
	})
	t.Run("with a key", func(t *testing.T) {
		e, p, c := again("task_2")
		c.Key = "k"
		_, found, err := p.Answer(t.Context(), c)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, []string{"task_1 for 1m0s"}, e.followed)
	})
}

func TestForget(t *testing.T) {
	e, p, _ := again("")
	var log bytes.Buffer
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	p.Forget(t.Context(), e.run)
	require.Equal(t, []string{"task_1"}, e.removed)
	require.Empty(t, log.String())

	e.remove = errors.New("the disk is full")
	p.Forget(t.Context(), e.run)
	require.Contains(t, log.String(), "its key cannot be used again")
	require.Contains(t, log.String(), "task_1")
}
