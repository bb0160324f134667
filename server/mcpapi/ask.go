package mcpapi

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// asker puts the questions of one call to the client's user: questions from its tool, and
// questions about held calls.
//
// Before 2026-07-28 the server asks with elicitation/create, while the call waits. Since
// then servers send no requests: the result contains the questions, and the client
// repeats the call with the answers (basic/patterns/mrtr). A call that has become a run
// then continues. The tool of any other call runs from its beginning, with the earlier
// answers, which the client carries in requestState. A call that has become a task asks
// through tasks/get and tasks/update.
type asker struct {
	api      *api
	who      caller
	session  *mcp.ServerSession
	tool     string
	cancel   context.CancelCauseFunc
	patience time.Duration // how long to wait for a secret that the user sets on a page
	sealed   state         // state of the call; empty on a first request without questions

	mu     sync.Mutex
	given  map[string][]abi.Answer // unused answers, by the digests of their questions
	wanted mcp.InputRequestMap     // unanswered questions that end the call
	asks   map[string]string       // digests of these questions
	held   string                  // run of the held call that the user is asked about
}

// errAsked ends a call whose answer is a list of questions.
var errAsked = fmt.Errorf("the user is asked first: %w", server.ErrAskAgain)

// newAsker reads the answers to earlier questions that a call carries. Its error is for
// the client.
func (a *api) newAsker(ctx context.Context, who caller, req *mcp.CallToolRequest, cancel context.CancelCauseFunc) (*asker, error) {
	k := &asker{api: a, who: who, session: req.Session, tool: req.Params.Name, cancel: cancel, given: map[string][]abi.Answer{}, patience: silentLimit}
	k.sealed = state{Call: digest(who.Audience(), req.Params), Session: who.Session}
	if req.Params.GetProgressToken() != nil {
		k.patience = connectLimit
	}
	if !who.modern || req.Params.RequestState == "" {
		return k, nil
	}

	sealed, err := a.unseal(ctx, req.Params.RequestState, k.sealed.Call)
	if err != nil {
		return nil, err
	}
	k.sealed = sealed
	if k.sealed.Known == nil {
		k.sealed.Known = map[string][]abi.Answer{}
	}
	for key, response := range req.Params.InputResponses {
		if asked, elicited := sealed.Asked[key], (*mcp.ElicitResult)(nil); asked != "" {
			if elicited, _ = response.(*mcp.ElicitResult); elicited != nil {
				k.sealed.Known[asked] = append(k.sealed.Known[asked], toAnswer(elicited))
			}
		}
	}
	for asked, answers := range k.sealed.Known {
		k.given[asked] = slices.Clone(answers)
	}
	return k, nil
}

// take returns the answer to a question with that digest. Each answer is used once.
func (k *asker) take(asked string) (abi.Answer, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answers := k.given[asked]
	if len(answers) == 0 {
		return abi.Answer{}, false
	}
	k.given[asked] = answers[1:]
	return answers[0], true
}

// forget drops an answer that does not fit its question, so that the question is asked again.
func (k *asker) forget(asked string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.sealed.Known[asked]
	k.sealed.Known[asked] = known[:len(known)-1-len(k.given[asked])]
}

// questionDigest returns the digest of a question and of the chain of calls that asks it.
func questionDigest(ctx context.Context, key string, q abi.Question) string {
	return hex.EncodeToString(digestOf(append(server.CallPath(ctx), key, q.Message, string(q.Schema))...))
}

// ask implements Ask of [server.Request].
func (k *asker) ask(ctx context.Context, q abi.Questions) (abi.Answers, error) {
	answers, wanted, digests := map[string]abi.Answer{}, map[string]abi.Question{}, map[string]string{}
	for key, question := range q.Questions {
		asked := questionDigest(ctx, key, question)
		answer, ok := k.take(asked)
		if ok {
			problem := server.CheckAnswer(key, question, answer)
			if problem == nil {
				answers[key] = answer
				continue
			}
			question.Message += "\n\n(" + problem.Error() + ")" // so the user sees why it is asked again
			k.forget(asked)
		}
		wanted[key], digests[key] = question, asked
	}

	switch {
	case len(wanted) == 0:
		return abi.Answers{Answers: answers}, nil
	case !k.who.elicits:
		return abi.Answers{}, fmt.Errorf("%w: the client cannot ask its user: it does not declare elicitation", server.ErrDenied)
	case !k.who.modern:
		return k.elicit(ctx, wanted)
	}
	k.want(inputRequests(wanted), digests)
	k.cancel(errAsked)
	return abi.Answers{}, server.ErrAskAgain
}

// decider returns Decide of [server.Request]; nil if the client cannot ask its user.
func (k *asker) decider() server.DecideFunc {
	if !k.who.elicits {
		return nil
	}
	return k.decide
}

// approvalKey is the key of the question about a held call. Keys that plugins choose
// contain no slash.
const approvalKey = "toolhost/approval"

// decide asks the user about a held call. The answer holds only for the run of that call,
// and for the code and the grants that the user was shown.
func (k *asker) decide(ctx context.Context, call server.HeldCall) (abi.Answer, error) {
	shown := call.Question
	if call.Note != "" {
		shown.Message = call.Note + "\n\n" + shown.Message // first, because the arguments come last
	}
	if !k.who.modern {
		given, err := k.elicit(ctx, map[string]abi.Question{approvalKey: shown})
		return given.Answers[approvalKey], err
	}

	asked := hex.EncodeToString(digestOf(call.Run, call.Fingerprint, call.Question.Message, string(call.Question.Schema)))
	if answer, ok := k.take(asked); ok {
		return answer, nil
	}
	k.want(inputRequests(map[string]abi.Question{approvalKey: shown}), map[string]string{approvalKey: asked})
	k.mu.Lock()
	k.held = call.Run
	k.mu.Unlock()
	return abi.Answer{}, server.ErrAskAgain
}

// want records the questions that end the call.
func (k *asker) want(requests mcp.InputRequestMap, digests map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted, k.asks = requests, digests
}

// asking reports whether questions end the call.
func (k *asker) asking() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wanted != nil
}

// misfit is the beginning of the SDK's error for an accepted answer that does not fit its
// form.
const misfit = "elicitation result content does not match requested schema"

// elicit asks questions one after the other, while the call waits.
func (k *asker) elicit(ctx context.Context, wanted map[string]abi.Question) (abi.Answers, error) {
	out := abi.Answers{Answers: map[string]abi.Answer{}}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		result, err := k.session.Elicit(ctx, elicitation(wanted[key]))
		if err != nil {
			if strings.HasPrefix(err.Error(), misfit) {
				return abi.Answers{}, fmt.Errorf("%w %s", abi.ErrAnswer, key) // without the answer, which may be secret
			}
			if ctx.Err() != nil || errors.Is(err, mcp.ErrConnectionClosed) {
				k.api.log.Info("a question to the client was not answered", "tool", k.tool, "session", k.who.Session, "request", k.request(), "cause", context.Cause(ctx))
			}
			return abi.Answers{}, err
		}
		out.Answers[key] = toAnswer(result)
	}
	return out, nil
}

// request returns the client's id of the call, for the log.
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

// result returns the answer to a call with open questions. The parameter run is the run
// that the call has become, if any.
func (k *asker) result(ctx context.Context, run *wire.Run) (*mcp.CallToolResult, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.sealed
	next.Asked = k.asks
	if next.Run == "" {
		next.Run = k.held
	}
	if run != nil {
		next.Session, next.Run = run.Session, run.TaskID
	}

	sealed, err := k.api.seal(ctx, next)
	if err != nil {
		k.api.log.Error("a request state was not made", "tool", k.tool, "session", k.who.Session, "error", err)
		return nil, hostError(err)
	}
	return &mcp.CallToolResult{InputRequests: k.wanted, RequestState: sealed}, nil
}
