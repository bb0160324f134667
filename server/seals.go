package server

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

const (
	sealLife  = 24 * time.Hour // how long a key signs; its seals stay valid as long again
	sealRetry = time.Second    // between two reads for an unknown key

	sealTimeout = 10 * time.Second // for reading the keys
)

// sealScope and sealRow are where the keys are stored: with the runs, so that all hosts
// of an engine share them.
var sealScope = engine.Scope{Name: "seals"}

const sealRow = "keys"

// ErrSeal reports a text that no host of this engine sealed, or that was sealed so long
// ago that its key is gone.
var ErrSeal = errors.New("this server did not issue it")

// Seals signs data that clients carry for a server. Clients can read it, but not change
// it. All hosts of an engine accept each other's seals, and a host those of its earlier
// processes, as long as the engine keeps its runs. A seal is valid for at least 24 hours.
// Seals is safe for concurrent use.
type Seals struct {
	engine engine.Engine

	mu      sync.Mutex
	keys    []sealKey // newest first, at most two
	version int64     // version of their row
	read    time.Time
}

// A sealKey is never logged.
type sealKey struct {
	ID   string    `json:"id"`
	Key  []byte    `json:"key"`
	From time.Time `json:"from"`
}

// Seals returns the seals of the hosts that share the engine of the service.
func (s *Service) Seals() *Seals { return s.seals }

// Seal returns body with a signature, in letters, digits and . _ -. Only Open with the
// same purpose accepts it.
func (s *Seals) Seal(ctx context.Context, purpose string, body []byte) (string, error) {
	key, err := s.current(ctx)
	if err != nil {
		return "", fmt.Errorf("sealing: %w", err)
	}
	enc := base64.RawURLEncoding
	return key.ID + "." + enc.EncodeToString(key.sign(purpose, body)) + "." + enc.EncodeToString(body), nil
}

// Open returns the body of a text that Seal returned, on any host. For anything else the
// error matches [ErrSeal].
func (s *Seals) Open(ctx context.Context, purpose, sealed string) ([]byte, error) {
	id, rest, _ := strings.Cut(sealed, ".")
	signature, text, _ := strings.Cut(rest, ".")
	mac, err := base64.RawURLEncoding.DecodeString(signature)
	body, bad := base64.RawURLEncoding.DecodeString(text)
	if err != nil || bad != nil {
		return nil, ErrSeal
	}

	key, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(mac, key.sign(purpose, body)) {
		return nil, ErrSeal
	}
	return body, nil
}

func (k sealKey) sign(purpose string, body []byte) []byte {
	mac := hmac.New(sha256.New, k.Key)
	fmt.Fprintf(mac, "%d:%s", len(purpose), purpose)
	mac.Write(body)
	return mac.Sum(nil)
}

// current returns the key that signs now, and makes a new one when it is due.
func (s *Seals) current(ctx context.Context) (sealKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for {
		now := time.Now()
		if len(s.keys) > 0 && now.Before(s.keys[0].From.Add(sealLife)) {
			return s.keys[0], nil
		}
		if err := s.load(ctx); err != nil {
			return sealKey{}, err
		}
		if len(s.keys) > 0 && now.Before(s.keys[0].From.Add(sealLife)) { // from another host
			continue
		}

		keys := append([]sealKey{{ID: rand.Text()[:8], Key: make([]byte, 32), From: now}}, s.keys[:min(len(s.keys), 1)]...)
		_, _ = rand.Read(keys[0].Key) // it never fails
		data, _ := json.Marshal(keys) // likewise
		_, err := s.engine.PutValue(context.WithoutCancel(ctx), sealScope, engine.Value{Key: sealRow, Data: data, Version: s.version}, engine.ValueLimit{})
		switch {
		case err == nil:
			s.keys = nil // it is read back: the answer to a write may be lost
		case !errors.Is(err, engine.ErrConflict): // else another host was faster
			return sealKey{}, err
		}
	}
}

// find returns a key by its id. An unknown one may be another host's newest.
func (s *Seals) find(ctx context.Context, id string) (sealKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for {
		for _, k := range s.keys {
			if k.ID == id && time.Since(k.From) < 2*sealLife {
				return k, nil
			}
		}
		if time.Since(s.read) < sealRetry { // so that clients cannot force a read each time
			return sealKey{}, ErrSeal
		}
		if err := s.load(ctx); err != nil {
			return sealKey{}, err
		}
	}
}

// load reads the keys, also for a call that was ended to ask its user. s is locked.
func (s *Seals) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealTimeout)
	defer cancel()
	row, err := s.engine.Value(ctx, sealScope, sealRow)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return err
	}

	var keys []sealKey
	if row.Data != nil && json.Unmarshal(row.Data, &keys) != nil {
		keys = nil // damaged: the next write replaces it
	}
	s.keys, s.version, s.read = keys, row.Version, time.Now()
	return nil
}

// Revoke makes a sealed text invalid on every host.
func (s *Seals) Revoke(ctx context.Context, sealed string) error {
	v := engine.Value{Key: revokedKey(sealed), Data: []byte("true"), Version: engine.AnyVersion, Expires: time.Now().Add(2 * sealLife)}
	_, err := s.engine.PutValue(context.WithoutCancel(ctx), sealScope, v, engine.ValueLimit{Count: maxRevoked})
	return err
}

// Revoked reports whether a sealed text was revoked, on any host.
func (s *Seals) Revoked(ctx context.Context, sealed string) (bool, error) {
	_, err := s.engine.Value(ctx, sealScope, revokedKey(sealed))
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// maxRevoked bounds the revocations that are stored.
const maxRevoked = 100_000

func revokedKey(sealed string) string {
	sum := sha256.Sum256([]byte(sealed))
	return "revoked." + base64.RawURLEncoding.EncodeToString(sum[:])
}
