package server

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// wiper is a destructive tool that notes what it was called with.
func wiper(wiped *[]string, name string) gotool.Tool {
	return gotool.Tool{Name: name, Description: "Deletes.", Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in scriptText) (scriptText, error) {
		*wiped = append(*wiped, name+" "+in.Text)
		return in, nil
	})}
}

// cleaner is a tool of the program that calls both wipers.
var cleaner = gotool.Tool{Name: "clean", Description: "Cleans.", Handler: gotool.Handle(func(ctx context.Context, c *gotool.Call, _ struct{}) ([]string, error) {
	var ends []string
	for _, one := range []struct{ tool, text string }{{"wipe", "a"}, {"nuke", "production"}, {"wipe", "b"}} {
		r, err := c.CallTool(ctx, one.tool, scriptText{one.text})
		if err != nil {
			r.Error = err.Error()
		}
		ends = append(ends, string(r.Value)+r.Error)
	}
	return ends, nil
})}

// asWell is the script that makes the calls of cleaner.
var asWell = code(`
	const ends = []
	for (const [name, text] of [["wipe", "a"], ["nuke", "production"], ["wipe", "b"]])
		try { ends.push(JSON.stringify(await tools[name]({text}))) } catch (e) { ends.push(e.message) }
	return ends`)

// openWipers opens a service whose two destructive tools are called by others.
func openWipers(t *testing.T, wiped *[]string) service {
	return openScripts(t, Config{
		Tools:     []gotool.Tool{wiper(wiped, "wipe"), wiper(wiped, "nuke"), cleaner},
		Approvals: ApprovalPolicy{Ask: true, Tools: map[string]Decision{"clean": DecideAllow, "exec": DecideAllow}},
	})
}

// remember answers questions about held calls, and can only do so in the next request, as a
// client since 2026-07-28.
type remember struct {
	asked  []HeldCall
	answer map[string]string // decisions by run
}

func (m *remember) decide(_ context.Context, call HeldCall) (abi.Answer, error) {
	decision, ok := m.answer[call.Run]
	if !ok {
		m.asked = append(m.asked, call)
		return abi.Answer{}, ErrAskAgain
	}
	delete(m.answer, call.Run)
	content, err := json.Marshal(map[string]string{"decision": decision})
	return abi.Answer{Action: abi.AnswerAccept, Content: content}, err
}

// Each call that a tool or a script makes is held on its own: one answer approves one call.
func TestHeldInside(t *testing.T) {
	for tool, args := range map[string]json.RawMessage{"clean": json.RawMessage(`{}`), "exec": asWell} {
		t.Run(tool, func(t *testing.T) {
			var wiped []string
			var asked []HeldCall
			s := openWipers(t, &wiped)
			r, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: tool, Args: args, Decide: func(ctx context.Context, call HeldCall) (abi.Answer, error) {
				decision := "once"
				if len(asked) == 1 {
					decision = "no"
				}
				return deciding(&asked, abi.AnswerAccept, decision)(ctx, call)
			}})
			require.NoError(t, err)
			require.Len(t, asked, 3)
			require.Contains(t, asked[0].Question.Message, "Allow wipe, called by "+tool)
			require.Contains(t, asked[1].Question.Message, `Its arguments: {"text":"production"}`)
			require.Equal(t, []string{"wipe a", "wipe b"}, wiped)
			require.Contains(t, string(r.Value), "the user did not allow it")
		})
	}
}

// The same for a client that answers with its next request: the tool runs once, and waits as
// a run for each decision.
func TestHeldInsideAskedAgain(t *testing.T) {
	for tool, args := range map[string]json.RawMessage{"clean": json.RawMessage(`{}`), "exec": asWell} {
		t.Run(tool, func(t *testing.T) {
			var wiped []string
			s := openWipers(t, &wiped)
			m := &remember{answer: map[string]string{}}
			var run wire.Run
			req := Request{Session: alice, Tool: tool, Args: args, Decide: m.decide, OnPark: func(r wire.Run) { run = r }}
			for i, decision := range []string{"once", "no", "once"} {
				_, err := s.Service.Call(t.Context(), req)
				require.ErrorIs(t, err, ErrAskAgain)
				require.Len(t, m.asked, i+1)
				require.NotEqual(t, run.TaskID, m.asked[i].Run)
				req.Resumes, m.answer = run.TaskID, map[string]string{m.asked[i].Run: decision}
			}
			r, err := s.Service.Call(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, []string{"wipe a", "wipe b"}, wiped)
			require.Contains(t, string(r.Value), "the user did not allow it")
		})
	}
}

// An answer is for the run that was asked about. One for another run, or for a call that was
// decided, is not used.
func TestAnswersAreBound(t *testing.T) {
	s := openAsking(t, Config{}, "1.0.0")
	m := &remember{answer: map[string]string{}}
	var run wire.Run
	req := Request{Session: alice, Tool: "drop", Args: json.RawMessage(`{"n":1}`), Decide: m.decide, OnPark: func(r wire.Run) { run = r }}
	_, err := s.Service.Call(t.Context(), req)
	require.ErrorIs(t, err, ErrAskAgain)
	require.Equal(t, run.TaskID, m.asked[0].Run, "the call itself is held")

	again := req
	again.Resumes, m.answer = run.TaskID, map[string]string{run.TaskID: "once"}
	r, err := s.Service.Call(t.Context(), again)
	require.NoError(t, err)
	require.JSONEq(t, `{"n":1}`, string(r.Value))
	m.answer[run.TaskID] = "once"
	r, err = s.Service.Call(t.Context(), again)
	require.NoError(t, err)
	require.JSONEq(t, `{"n":1}`, string(r.Value), "the result of the one run")
	runs, err := s.engine.List(t.Context(), engine.Query{Session: alice})
	require.NoError(t, err)
	require.Len(t, runs, 1)
	require.Equal(t, 1, runs[0].Attempt)

	_, err = s.Service.Call(t.Context(), req)
	require.ErrorIs(t, err, ErrAskAgain, "the same call again is another one")
	other := req
	other.Resumes, m.answer = run.TaskID, map[string]string{"bg_other": "once"}
	_, err = s.Service.Call(t.Context(), other)
	require.ErrorIs(t, err, ErrAskAgain)
	require.Equal(t, "queued approval attempt 0", s.state(alice, run.TaskID))
}

// spawn_background asks too, and resumes with the run that it has spawned.
func TestHeldSpawn(t *testing.T) {
	s := openAsking(t, Config{}, "1.0.0")
	m := &remember{answer: map[string]string{}}
	req := Request{Session: alice, Tool: SpawnBackground, Args: json.RawMessage(`{"tool":"drop","args":{"n":1}}`), Decide: m.decide}
	_, err := s.Service.Call(t.Context(), req)
	require.ErrorIs(t, err, ErrAskAgain)
	id := m.asked[0].Run
	req.Resumes, m.answer = id, map[string]string{id: "once"}
	r, err := s.Service.Call(t.Context(), req)
	require.NoError(t, err)
	require.Contains(t, string(r.Value), id)
	require.Equal(t, engine.StatusSucceeded, s.settled(alice, id).Status)
}

// A caller who leaves ends the call that its tool makes, and what is held for that.
func TestHeldInsideIsLeft(t *testing.T) {
	var wiped []string
	s := openWipers(t, &wiped)
	ctx, leave := context.WithCancelCause(t.Context())
	gone := errors.New("the client left")
	_, err := s.Service.Call(ctx, Request{Session: alice, Tool: "clean", Decide: func(ctx context.Context, _ HeldCall) (abi.Answer, error) {
		leave(gone)
		<-ctx.Done()
		return abi.Answer{}, ctx.Err()
	}})
	require.ErrorIs(t, err, gone)
	require.Empty(t, wiped)
	list, err := s.Approvals().List(t.Context(), "", 0)
	require.NoError(t, err)
	require.Empty(t, list.Approvals)
}
