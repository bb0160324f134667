package seal

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

const (
	keyLife = 24 * time.Hour // how long a key signs; its seals stay valid for as long again

	readRetry   = time.Second      // pause between two reads for an unknown key
	readTimeout = 10 * time.Second // time limit for reading the keys
)

// keysRow is the name of the value with the keys.
const keysRow = "keys"

// A key signs seals. It is never logged.
type key struct {
	ID   string    `json:"id"`
	Key  []byte    `json:"key"`
	From time.Time `json:"from"`
}

func (k key) sign(purpose string, body []byte) []byte {
	mac := hmac.New(sha256.New, k.Key)
	fmt.Fprintf(mac, "%d:%s", len(purpose), purpose)
	mac.Write(body)
	return mac.Sum(nil)
}

// ring holds the keys of all hosts of an engine.
type ring struct {
	engine engine.Engine

	mu      sync.Mutex
	keys    []key // newest first, at most two
	version int64 // version of their row
	read    time.Time
}

// current returns the key that signs now, and makes a new one when it is due.
func (r *ring) current(ctx context.Context) (key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for !r.fresh() {
		if err := r.load(ctx); err != nil {
			return key{}, err
		}
		if r.fresh() { // made by another host
			break
		}
		if err := r.rotate(ctx); err != nil && !errors.Is(err, engine.ErrConflict) { // else another host was faster
			return key{}, err
		}
	}
	return r.keys[0], nil
}

// fresh reports whether the newest key may sign. The caller holds the mutex.
func (r *ring) fresh() bool {
	return len(r.keys) > 0 && time.Now().Before(r.keys[0].From.Add(keyLife))
}

// rotate stores a new key next to the previous one. The caller reads them back, because
// the answer to a write may be lost, and holds the mutex.
func (r *ring) rotate(ctx context.Context) error {
	keys := append([]key{{ID: rand.Text()[:8], Key: make([]byte, 32), From: time.Now()}}, r.keys[:min(len(r.keys), 1)]...)
	_, _ = rand.Read(keys[0].Key) // it never fails
	data, _ := json.Marshal(keys) // likewise
	_, err := r.engine.PutValue(context.WithoutCancel(ctx), scope, engine.Value{Key: keysRow, Data: data, Version: r.version}, engine.ValueLimit{})
	return err
}

// find returns a key by its id. An unknown one may be another host's newest.
func (r *ring) find(ctx context.Context, id string) (key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for {
		for _, k := range r.keys {
			if k.ID == id && time.Since(k.From) < 2*keyLife {
				return k, nil
			}
		}
		if time.Since(r.read) < readRetry { // so that clients cannot force a read each time
			return key{}, ErrInvalid
		}
		if err := r.load(ctx); err != nil {
			return key{}, err
		}
	}
}

// load reads the keys, even for a call that was ended to ask its user. The caller holds
// the mutex.
func (r *ring) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	row, err := r.engine.Value(ctx, scope, keysRow)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return err
	}

	var keys []key
	if row.Data != nil && json.Unmarshal(row.Data, &keys) != nil {
		keys = nil // damaged: the next write replaces it
	}
	r.keys, r.version, r.read = keys, row.Version, time.Now()
	return nil
}
