package mcpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
)

// state is the content of a requestState: the questions of a call. It is signed, so that
// a client can answer only these, in this very call. An answer counts for a question
// whose digest is in the state.
type state struct {
	Expires int64                   `json:"exp"` // Unix time
	Call    []byte                  `json:"for"` // digest of the call
	Session string                  `json:"session,omitempty"`
	Run     string                  `json:"run,omitempty"`   // run that the call has become
	Asked   map[string]string       `json:"asked,omitempty"` // digests of the open questions, by key
	Known   map[string][]abi.Answer `json:"known,omitempty"` // earlier answers, in order, by the digests of their questions
}

// digest binds answers to the session and the call they are for.
func digest(session string, params *mcp.CallToolParamsRaw) []byte {
	return digestOf(session, params.Name, string(params.Arguments))
}

func digestOf(parts ...string) []byte {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

// statePurpose is the purpose of sealed states.
const statePurpose = "mcp request state"

// seal returns the state of a call with questions. Every host that shares the engine can
// open it.
func (a *api) seal(ctx context.Context, s state) (string, error) {
	s.Expires = time.Now().Add(server.MaxAskAgain).Unix()
	body, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	return a.service.Seals().Seal(ctx, statePurpose, body)
}

// unseal opens the sealed state of a call. Its error is for the client.
func (a *api) unseal(ctx context.Context, sealed string, call []byte) (s state, err error) {
	body, err := a.service.Seals().Open(ctx, statePurpose, sealed)
	if err != nil && !errors.Is(err, server.ErrSeal) {
		a.log.Error("a request state was not checked", "error", err)
		return s, hostError(err)
	}

	switch {
	case err != nil || json.Unmarshal(body, &s) != nil:
		return s, invalidState("this server did not issue it")
	case time.Now().Unix() > s.Expires:
		return s, invalidState("it has expired")
	case !bytes.Equal(s.Call, call):
		return s, invalidState("it was issued for another call")
	}
	return s, nil
}

func invalidState(why string) error {
	return invalidParams("requestState: " + why + ": call again without it")
}
