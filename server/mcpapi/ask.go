package mcpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
)

// asker puts the questions of one call to the client's user.
//
// Before 2026-07-28 the server asks with elicitation/create, while the call waits.
// Since then a server sends no requests: the call is answered with the questions,
// and the client calls again with the answers (basic/patterns/mrtr). The tool then
// runs from its beginning, with the answers it had before, which the client carries
// in requestState. A call that has become a task asks through tasks/get and
// tasks/update.
type asker struct {
	api      *api
	who      caller
	session  *mcp.ServerSession
	tool     string
	digest   []byte // of what the answers are for
	cancel   context.CancelCauseFunc
	known    map[string]abi.Answer
	patience time.Duration                       // how long a page is waited for
	wanted   atomic.Pointer[mcp.InputRequestMap] // questions without an answer, once the call was ended for them
}

// errAsked is why a call with questions was ended.
var errAsked = fmt.Errorf("the user is asked first: %w", server.ErrAskAgain)

// newAsker reads the answers that a call brings. Its error is for the client.
func (a *api) newAsker(ctx context.Context, who caller, req *mcp.CallToolRequest, cancel context.CancelCauseFunc) (*asker, error) {
	k := &asker{api: a, who: who, session: req.Session, tool: req.Params.Name, digest: digest(who.Audience(), req.Params), cancel: cancel, known: map[string]abi.Answer{}, patience: silentLimit}
	if req.Params.GetProgressToken() != nil {
		k.patience = connectLimit
	}
	if !who.modern {
		return k, nil
	}

	if state := req.Params.RequestState; state != "" {
		known, err := a.unseal(ctx, state, k.digest)
		if err != nil {
			return nil, err
		}
		k.known = known
	}
	for key, response := range req.Params.InputResponses {
		if elicited, ok := response.(*mcp.ElicitResult); ok {
			k.known[key] = toAnswer(elicited)
		}
	}
	return k, nil
}

// ask implements Ask of [server.Request].
func (k *asker) ask(ctx context.Context, q abi.Questions) (abi.Answers, error) {
	answers, wanted := map[string]abi.Answer{}, map[string]abi.Question{}
	for key, question := range q.Questions {
		answer, ok := k.known[key]
		if ok {
			problem := server.CheckAnswer(key, question, answer)
			if problem == nil {
				answers[key] = answer
				continue
			}
			question.Message += "\n\n(" + problem.Error() + ")" // so the user sees why it is asked again
			delete(k.known, key)
		}
		wanted[key] = question
	}

	switch {
	case len(wanted) == 0:
		return abi.Answers{Answers: answers}, nil
	case !k.who.elicits:
		return abi.Answers{}, fmt.Errorf("%w: the client cannot ask its user: it does not declare elicitation", server.ErrDenied)
	case !k.who.modern:
		return k.elicit(ctx, wanted)
	}

	requests := inputRequests(wanted)
	k.wanted.Store(&requests)
	k.cancel(errAsked)
	return abi.Answers{}, server.ErrAskAgain
}

// elicit asks one question after the other, while the call waits.
func (k *asker) elicit(ctx context.Context, wanted map[string]abi.Question) (abi.Answers, error) {
	out := abi.Answers{Answers: map[string]abi.Answer{}}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		result, err := k.session.Elicit(ctx, elicitation(wanted[key]))
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, mcp.ErrConnectionClosed) {
				k.api.log.Info("a question to the client was not answered", "tool", k.tool, "session", k.who.Session, "request", k.request(), "cause", context.Cause(ctx))
			}
			return abi.Answers{}, err
		}
		out.Answers[key] = toAnswer(result)
	}
	return out, nil
}

// request is the client's id of the call, for the log.
func (k *asker) request() string {
	if k.who.receipt == nil {
		return ""
	}
	return k.who.receipt.request
}

func elicitation(q abi.Question) *mcp.ElicitParams {
	return &mcp.ElicitParams{Mode: "form", Message: q.Message, RequestedSchema: q.Schema}
}

func inputRequests(questions map[string]abi.Question) mcp.InputRequestMap {
	requests := mcp.InputRequestMap{}
	for key, q := range questions {
		requests[key] = elicitation(q)
	}
	return requests
}

func toAnswer(r *mcp.ElicitResult) abi.Answer {
	answer := abi.Answer{Action: r.Action}
	if r.Action == abi.AnswerAccept {
		answer.Content, _ = json.Marshal(r.Content) // it was JSON
	}
	return answer
}

// result is the answer to a call with open questions.
func (k *asker) result(ctx context.Context) (*mcp.CallToolResult, error) {
	sealed, err := k.api.seal(ctx, k.known, k.digest)
	if err != nil {
		k.api.log.Error("a request state was not made", "tool", k.tool, "session", k.who.Session, "error", err)
		return nil, hostError(err)
	}
	return &mcp.CallToolResult{InputRequests: *k.wanted.Load(), RequestState: sealed}, nil
}
