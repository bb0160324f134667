package mcpapi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
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

// states seals and opens the state of calls that ask. Its key lasts as long as the
// process: after a restart clients are asked again.
type states struct{ key []byte }

func newStates() states {
	k := states{make([]byte, 32)}
	_, _ = rand.Read(k.key) // it never fails
	return k
}

func (k states) seal(known map[string]abi.Answer, digest []byte, now time.Time) string {
	body, _ := json.Marshal(state{now.Add(stateLife).Unix(), digest, known}) // answers were JSON: it cannot fail
	return base64.RawURLEncoding.EncodeToString(append(k.sign(body), body...))
}

func (k states) sign(body []byte) []byte {
	mac := hmac.New(sha256.New, k.key)
	mac.Write(body)
	return mac.Sum(nil)
}

// open returns the answers in a state that this server sealed for that call.
func (k states) open(sealed string, digest []byte, now time.Time) (map[string]abi.Answer, error) {
	var s state
	data, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(data) < sha256.Size || !hmac.Equal(data[:sha256.Size], k.sign(data[sha256.Size:])) ||
		json.Unmarshal(data[sha256.Size:], &s) != nil {
		return nil, errors.New("this server did not issue it: call again without it")
	}

	switch {
	case now.Unix() > s.Expires:
		return nil, errors.New("it has expired: call again without it")
	case !hmac.Equal(s.Digest, digest):
		return nil, errors.New("it was issued for another call: call again without it")
	case s.Known == nil:
		s.Known = map[string]abi.Answer{}
	}
	return s.Known, nil
}
