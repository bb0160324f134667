package httpapi

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// How the issuer's keys are fetched and kept.
const (
	keysFresh    = 10 * time.Minute // then they are fetched anew, while those there are still go on
	keysLast     = time.Hour        // then they are dropped: a key the issuer took back must not go on for ever
	keysPause    = 10 * time.Second // from one fetch to the next at least, whatever clients send
	keysTimeout  = 5 * time.Second  // of a fetch with all its requests
	maxKeysBytes = 512 << 10        // of one answer of the issuer
	maxKeys      = 64               // a token that does not name its key may have them all tried
	minRSA       = 256              // bytes of a modulus: 2,048 bits (RFC 7518, 3.3)
)

// errNoKeys is that the issuer's keys cannot be had now, so that nobody can say
// whether a token is good.
var errNoKeys = errors.New("the issuer's keys are not to be had")

// keySet has the issuer's keys. They are fetched when a token first needs them,
// when one names a key that is not there, and now and then; never more often
// than each keysPause, and never by two at once. Nobody waits for a fetch whose
// token can be checked without it.
type keySet struct {
	OAuth
	client *http.Client
	log    *slog.Logger
	ctx    context.Context // ends fetches

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	got     time.Time     // when they came
	next    time.Time     // no fetch before
	pending chan struct{} // closes when the fetch that is going on ends; nil is none
	err     error         // of the last fetch
	closed  bool          // no fetch any more
	running sync.WaitGroup
}

func newKeySet(ctx context.Context, o OAuth, log *slog.Logger) *keySet {
	return &keySet{OAuth: o, ctx: ctx, log: log, client: &http.Client{
		Transport: keysTransport(o.dial), Timeout: keysTimeout,
		// What the issuer publishes is where it says it is: a redirect could lead
		// to plain HTTP, or to what only this machine can reach.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// keysTransport asks the issuer: seldom, so that no connection is kept.
func keysTransport(dial dialer) http.RoundTripper {
	return &http.Transport{DialContext: dial, Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 32 << 10, ForceAttemptHTTP2: true}
}

// close waits for the fetch that is going on, and no other begins. The set's
// context has to be done, or it may take keysTimeout.
func (k *keySet) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.running.Wait()
}

// find returns the keys a token with this header may be signed by. Without an
// id that is each that fits (RFC 7515, 4.1.4). Its error is errNoKeys, or that
// ctx is done.
func (k *keySet) find(ctx context.Context, id, algorithm string) ([]jose.JSONWebKey, error) {
	found, pending := k.look(id, algorithm)
	if len(found) > 0 {
		return found, nil
	}
	if pending != nil {
		select {
		case <-pending:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		found, _ = k.look(id, algorithm)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(found) == 0 && (k.err != nil || k.got.IsZero()) {
		return nil, errNoKeys
	}
	return found, nil
}

// look returns what is there, and the fetch that is going on. It begins one if
// it makes sense and may be.
func (k *keySet) look(id, algorithm string) (found []jose.JSONWebKey, pending <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if now.Sub(k.got) > keysLast {
		k.keys, k.got = nil, time.Time{}
	}
	for _, key := range k.keys {
		if (id == "" || key.KeyID == id) && (key.Algorithm == "" || key.Algorithm == algorithm) {
			found = append(found, key)
		}
	}
	wanted := len(found) == 0 || now.Sub(k.got) > keysFresh
	if wanted && k.pending == nil && !now.Before(k.next) && !k.closed {
		k.pending, k.next = make(chan struct{}), now.Add(keysPause)
		k.running.Go(k.refresh)
	}
	return found, k.pending
}

// refresh fetches the keys.
func (k *keySet) refresh() {
	ctx, cancel := context.WithTimeout(k.ctx, keysTimeout)
	defer cancel()
	keys, err := k.fetch(ctx)
	if err != nil && k.ctx.Err() == nil {
		k.log.Warn("the keys of the OAuth issuer were not fetched", "issuer", k.Issuer, "error", clip(err.Error())) // it has what the issuer said
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil {
		k.keys, k.got = keys, time.Now()
	}
	close(k.pending)
	k.pending = nil
}

func (k *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	url := k.JWKS
	if url == "" {
		var err error
		if url, err = k.discover(ctx); err != nil {
			return nil, err
		}
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := k.get(ctx, url, &set); err != nil {
		return nil, err
	}
	keys := usable(set.Keys)
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: no key that tokens can be checked with", url)
	}
	return keys, nil
}

// usable are the keys of a set that can be used: public ones for signatures.
// What else is there is left out (RFC 7517, 5).
func usable(set []json.RawMessage) []jose.JSONWebKey {
	var keys []jose.JSONWebKey
	for _, data := range set {
		var key jose.JSONWebKey
		if json.Unmarshal(data, &key) != nil || !key.Valid() || !key.IsPublic() || key.Use != "" && key.Use != "sig" {
			continue
		}
		if k, ok := key.Key.(*rsa.PublicKey); ok && k.Size() < minRSA {
			continue
		}
		if keys = append(keys, key); len(keys) == maxKeys {
			break
		}
	}
	return keys
}

// discover asks the issuer where its keys are: as OpenID Connect Discovery, 4
// has it, then as RFC 8414, 3.1.
func (k *keySet) discover(ctx context.Context) (string, error) {
	var errs []error
	for _, at := range []string{
		strings.TrimSuffix(k.Issuer, "/") + "/.well-known/openid-configuration",
		wellKnown(k.Issuer, "/.well-known/oauth-authorization-server"),
	} {
		var metadata struct {
			Issuer string `json:"issuer"`
			JWKS   string `json:"jwks_uri"`
		}
		err := k.get(ctx, at, &metadata)
		if err == nil && metadata.Issuer != k.Issuer { // RFC 8414, 3.3
			err = fmt.Errorf("%s: it is of the issuer %q", at, metadata.Issuer)
		}
		if err == nil {
			err = k.checkDiscovered(at, metadata.JWKS)
		}
		if err == nil {
			return metadata.JWKS, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// checkDiscovered keeps an issuer elsewhere from having this machine asked.
func (k *keySet) checkDiscovered(at, keys string) error {
	u, err := secureURL("jwks_uri", keys)
	if err == nil && u.Scheme != "https" && !strings.HasPrefix(k.Issuer, "http:") {
		err = fmt.Errorf("jwks_uri: %q is not https", keys)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// get fetches a JSON object.
func (k *keySet) get(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", jsonMedia)
	resp, err := k.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxKeysBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", url, err)
	case len(data) > maxKeysBytes:
		return fmt.Errorf("%s: more than %d bytes", url, maxKeysBytes)
	case json.Unmarshal(data, v) != nil:
		return fmt.Errorf("%s: not the JSON that is expected", url)
	}
	return nil
}
