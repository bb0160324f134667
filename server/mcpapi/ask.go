package mcpapi

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server"
)

// asking puts the questions of one call to the client's user.
//
// Before 2026-07-28 the server asks with elicitation/create, while the call
// waits. Since then a server sends no requests: the call is ended and answered
// with the questions, and the client makes it again with the answers
// (basic/patterns/mrtr). The tool then runs from its beginning, and is given the
// answers it had before, which the client carries in requestState; an answer
// that does not fit is asked for again. A call that has become a task asks
// through tasks/get and tasks/update.
type asking struct {
	api     *api
	who     caller
	session *mcp.ServerSession
	digest  []byte // of what the answers are for
	cancel  context.CancelCauseFunc
	known   map[string]abi.Answer

	mu     sync.Mutex
	wanted map[string]abi.Question // not answered yet
}

// errAsked is why a call was ended that has questions.
var errAsked = errors.New("the user is asked first")

// asking reads the answers a call comes with. Its error is for the client.
func (a *api) asking(who caller, req *mcp.CallToolRequest, cancel context.CancelCauseFunc) (*asking, error) {
	k := &asking{api: a, who: who, session: req.Session, digest: digest(who.session, req.Params), cancel: cancel, known: map[string]abi.Answer{}}
	if !who.modern {
		return k, nil
	}
	if state := req.Params.RequestState; state != "" {
		known, err := a.openState(state, k.digest, time.Now())
		if err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "requestState: " + err.Error()}
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

// ask is server.Request's Ask.
func (k *asking) ask(ctx context.Context, q abi.Questions) (abi.Answers, error) {
	answers := map[string]abi.Answer{}
	wanted := map[string]abi.Question{}
	for key, question := range q.Questions {
		a, ok := k.known[key]
		switch misfit := server.CheckAnswer(key, question, a); {
		case ok && misfit == nil:
			answers[key] = a
			continue
		case ok:
			question.Message += "\n\n(" + misfit.Error() + ")" // so that the user sees why it comes again
		}
		delete(k.known, key)
		wanted[key] = question
	}
	switch {
	case len(wanted) == 0:
		return abi.Answers{Answers: answers}, nil
	case !k.who.elicits:
		return abi.Answers{}, fmt.Errorf("%w: the client cannot ask its user, for it does not declare elicitation", host.ErrDenied)
	case !k.who.modern:
		return k.elicit(ctx, wanted)
	}
	k.mu.Lock()
	k.wanted = wanted
	k.mu.Unlock()
	k.cancel(errAsked)
	return abi.Answers{}, server.ErrAskAgain
}

// elicit asks one question after the other, while the call waits.
func (k *asking) elicit(ctx context.Context, wanted map[string]abi.Question) (abi.Answers, error) {
	out := abi.Answers{Answers: map[string]abi.Answer{}}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		result, err := k.session.Elicit(ctx, elicitation(wanted[key]))
		if err != nil {
			return abi.Answers{}, err
		}
		out.Answers[key] = toAnswer(result)
	}
	return out, nil
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

// open reports whether the call was ended by its questions.
func (k *asking) open() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wanted != nil
}

// result is the answer to a call with open questions.
func (k *asking) result() (mcp.Result, error) {
	state, err := k.api.sealState(k.known, k.digest, time.Now())
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{InputRequests: inputRequests(k.wanted), RequestState: state}, nil
}

// stateLife is how long a client may take to answer.
const stateLife = time.Hour

// state is what a requestState holds. It is signed: clients are to be trusted
// with no more than their own answers to this very call.
type state struct {
	Expires int64                 `json:"exp"` // Unix time
	Digest  []byte                `json:"for"`
	Known   map[string]abi.Answer `json:"known,omitempty"`
}

// digest binds answers to who gave them, and to what.
func digest(session string, params *mcp.CallToolParamsRaw) []byte {
	h := sha256.New()
	for _, part := range []string{session, params.Name, string(params.Arguments)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

func (a *api) sealState(known map[string]abi.Answer, digest []byte, now time.Time) (string, error) {
	body, err := json.Marshal(state{now.Add(stateLife).Unix(), digest, known})
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(body) + "." + base64.RawURLEncoding.EncodeToString(a.sign(body)), nil
}

func (a *api) sign(body []byte) []byte {
	mac := hmac.New(sha256.New, a.key)
	mac.Write(body)
	return mac.Sum(nil)
}

// openState returns the answers in a state of this server, for that call.
func (a *api) openState(sealed string, digest []byte, now time.Time) (map[string]abi.Answer, error) {
	text, signature, _ := strings.Cut(sealed, ".")
	body, err1 := base64.RawURLEncoding.DecodeString(text)
	mac, err2 := base64.RawURLEncoding.DecodeString(signature)
	var s state
	switch {
	case err1 != nil || err2 != nil || !hmac.Equal(mac, a.sign(body)) || json.Unmarshal(body, &s) != nil:
		return nil, errors.New("it is not what this server gave")
	case now.Unix() > s.Expires:
		return nil, errors.New("it is too old: call again without it")
	case !hmac.Equal(s.Digest, digest):
		return nil, errors.New("it was given for another call")
	case s.Known == nil:
		s.Known = map[string]abi.Answer{}
	}
	return s.Known, nil
}
