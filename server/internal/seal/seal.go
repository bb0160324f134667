// Package seal signs data that clients carry for a server. The keys are stored with the
// runs, so that all hosts of an engine accept each other's seals.
package seal

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// scope is where the keys and the revocations are stored.
var scope = engine.Scope{Name: "seals"}

// maxRevoked is the maximum number of revocations that are stored.
const maxRevoked = 100_000

// ErrInvalid reports a text that no host of this engine sealed, or that was sealed so
// long ago that its key is gone.
var ErrInvalid = errors.New("this server did not issue it")

// A Sealer signs data that clients carry for a server. Clients can read it, but not change it.
// All hosts of an engine accept each other's seals. If the engine keeps its runs beyond the
// life of a process, a host also accepts the seals of its earlier processes. A seal is valid
// for at least 24 hours. A Sealer is safe for concurrent use.
type Sealer struct {
	engine engine.Engine
	keys   ring
}

// New returns a Sealer for an engine.
func New(e engine.Engine) *Sealer { return &Sealer{engine: e, keys: ring{engine: e}} }

// Seal returns body with a signature, as a text of letters, digits and the characters . _ and
// -. Only Open with the same purpose accepts it.
func (s *Sealer) Seal(ctx context.Context, purpose string, body []byte) (string, error) {
	k, err := s.keys.current(ctx)
	if err != nil {
		return "", fmt.Errorf("sealing: %w", err)
	}
	enc := base64.RawURLEncoding
	return k.ID + "." + enc.EncodeToString(k.sign(purpose, body)) + "." + enc.EncodeToString(body), nil
}

// Open returns the body of a text that Seal returned, on any host. For anything else the
// error matches [ErrInvalid].
func (s *Sealer) Open(ctx context.Context, purpose, sealed string) ([]byte, error) {
	id, rest, _ := strings.Cut(sealed, ".")
	signature, text, _ := strings.Cut(rest, ".")
	mac, err := base64.RawURLEncoding.DecodeString(signature)
	body, bad := base64.RawURLEncoding.DecodeString(text)
	if err != nil || bad != nil {
		return nil, ErrInvalid
	}

	k, err := s.keys.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(mac, k.sign(purpose, body)) {
		return nil, ErrInvalid
	}
	return body, nil
}

// Revoke makes a sealed text invalid on every host.
func (s *Sealer) Revoke(ctx context.Context, sealed string) error {
	v := engine.Value{Key: revokedKey(sealed), Data: []byte("true"), Version: engine.AnyVersion, Expires: time.Now().Add(2 * keyLife)}
	_, err := s.engine.PutValue(context.WithoutCancel(ctx), scope, v, engine.ValueLimit{Count: maxRevoked})
	return err
}

// Revoked reports whether a sealed text was revoked, on any host.
func (s *Sealer) Revoked(ctx context.Context, sealed string) (bool, error) {
	_, err := s.engine.Value(ctx, scope, revokedKey(sealed))
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func revokedKey(sealed string) string {
	sum := sha256.Sum256([]byte(sealed))
	return "revoked." + base64.RawURLEncoding.EncodeToString(sum[:])
}
