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

// stateLife is how long a client may take to answer.
const stateLife = time.Hour

// state is the content of a requestState. It is signed, so that a client can give
// answers only to this very call.
type state struct {
	Expires int64                 `json:"exp"` // Unix time
	Digest  []byte                `json:"for"`
	Known   map[string]abi.Answer `json:"known,omitempty"`
}

// digest binds answers to the session and the call they are for.
func digest(session string, params *mcp.CallToolParamsRaw) []byte {
	h := sha256.New()
	for _, part := range []string{session, params.Name, string(params.Arguments)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

// statePurpose is what a state is sealed for.
const statePurpose = "mcp request state"

// seal returns the state of a call that asks. Every host that shares the engine opens it.
func (a *api) seal(ctx context.Context, known map[string]abi.Answer, digest []byte) (string, error) {
	body, err := json.Marshal(state{time.Now().Add(stateLife).Unix(), digest, known})
	if err != nil {
		return "", err
	}
	return server.SealsOf(a.service).Seal(ctx, statePurpose, body)
}

// unseal returns the answers in a state that was sealed for that call. Its error is for the
// client.
func (a *api) unseal(ctx context.Context, sealed string, digest []byte) (map[string]abi.Answer, error) {
	var s state
	body, err := server.SealsOf(a.service).Open(ctx, statePurpose, sealed)
	if err != nil && !errors.Is(err, server.ErrSeal) {
		a.log.Error("a request state was not checked", "error", err)
		return nil, hostError(err)
	}

	switch {
	case err != nil || json.Unmarshal(body, &s) != nil:
		return nil, invalidState("this server did not issue it")
	case time.Now().Unix() > s.Expires:
		return nil, invalidState("it has expired")
	case !bytes.Equal(s.Digest, digest):
		return nil, invalidState("it was issued for another call")
	case s.Known == nil:
		s.Known = map[string]abi.Answer{}
	}
	return s.Known, nil
}

func invalidState(why string) error {
	return invalidParams("requestState: " + why + ": call again without it")
}
