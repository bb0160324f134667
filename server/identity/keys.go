package identity

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

const (
	keysFresh    = 10 * time.Minute // age at which keys are fetched again; the old ones are used until the new ones arrive
	keysLast     = time.Hour        // age at which keys are dropped: a revoked key must not live on
	keysPause    = 10 * time.Second // least time between two fetches, whatever clients send
	keysTimeout  = 5 * time.Second  // time limit of a fetch, with all its requests
	maxKeysBytes = 512 << 10        // bytes of one answer from the issuer
	maxKeys      = 64               // most keys of an issuer; a token without a key id may have to be tried with all of them
	minRSA       = 256              // bytes of a modulus: 2,048 bits (RFC 7518, 3.3)
	maxLogged    = 4 << 10          // bytes of an error, which may quote the issuer
)

// RetryAfter is how long to wait before repeating a request refused with [wire.CodeIssuer].
const RetryAfter = keysPause

// errNoKeys means that the issuer's keys are not available, so that no token can be checked.
var errNoKeys = errors.New("the issuer's keys are not available")

// An issuer checks access tokens. It caches the issuer's keys, and fetches them when a
// token needs a missing key or the keys are no longer fresh, one fetch at a time and at
// most one per keysPause. A token that can be checked without the fetch does not wait for
// it. It is safe for concurrent use.
type issuer struct {
	OAuth
	valid  bool // the configuration is valid; otherwise no token is accepted
	client *http.Client
	log    *slog.Logger
	ctx    context.Context // ends fetches

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fetched time.Time     // time of the last fetch
	next    time.Time     // time of the next fetch at the earliest
	pending chan struct{} // closed when the current fetch ends; nil without one
	err     error         // error of the last fetch
}

func newIssuer(ctx context.Context, o OAuth, log *slog.Logger) *issuer {
	err := o.Check()
	if err != nil {
		log.Error("invalid OAuth configuration: no access token is accepted", "error", err)
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 32 << 10, ForceAttemptHTTP2: true,
		}
	}

	return &issuer{OAuth: o, valid: err == nil, ctx: ctx, log: log, client: &http.Client{
		Transport: o.Transport, Timeout: keysTimeout,
		// A redirect could lead to plain HTTP, or to an address that only this machine
		// can reach.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// find returns the keys that may have signed a token; if the token names no id, all keys
// that fit the algorithm (RFC 7515, 4.1.4). The error is errNoKeys or the error of ctx.
func (k *issuer) find(ctx context.Context, id, algorithm string) ([]jose.JSONWebKey, error) {
	found, pending, err := k.lookup(id, algorithm)
	if len(found) == 0 && pending != nil {
		select {
		case <-pending:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		found, _, err = k.lookup(id, algorithm)
	}
	return found, err
}

// lookup returns the cached keys and the current fetch, which it starts if needed and
// allowed. The error is errNoKeys if it finds none and the cache is not up to date.
func (k *issuer) lookup(id, algorithm string) (found []jose.JSONWebKey, pending <-chan struct{}, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	now := time.Now()
	if now.Sub(k.fetched) > keysLast {
		k.keys, k.fetched = nil, time.Time{}
	}
	for _, key := range k.keys {
		if (id == "" || key.KeyID == id) && (key.Algorithm == "" || key.Algorithm == algorithm) {
			found = append(found, key)
		}
	}

	wanted := len(found) == 0 || now.Sub(k.fetched) > keysFresh
	if wanted && k.pending == nil && !now.Before(k.next) {
		k.pending, k.next = make(chan struct{}), now.Add(keysPause)
		go k.refresh()
	}
	if len(found) == 0 && (k.err != nil || k.fetched.IsZero()) {
		err = errNoKeys
	}
	return found, k.pending, err
}

func (k *issuer) refresh() {
	ctx, cancel := context.WithTimeout(k.ctx, keysTimeout)
	defer cancel()

	keys, err := k.fetch(ctx)
	if err != nil && k.ctx.Err() == nil {
		text := err.Error()
		k.log.Warn("fetching the keys of the OAuth issuer failed", "issuer", k.Issuer, "error", text[:min(len(text), maxLogged)])
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil {
		k.keys, k.fetched = keys, time.Now()
	}
	close(k.pending)
	k.pending = nil
}

func (k *issuer) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	url, err := k.discover(ctx)
	if err != nil {
		return nil, err
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

// usable returns the public signature keys of a set, and skips the rest (RFC
// 7517, 5).
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

// discover returns the URL of the keys. If it is not configured, it comes from the
// issuer's metadata: OpenID Connect Discovery, 4, or else RFC 8414, 3.1.
func (k *issuer) discover(ctx context.Context) (string, error) {
	if k.JWKS != "" {
		return k.JWKS, nil
	}

	var errs []error
	for _, at := range []string{
		strings.TrimSuffix(k.Issuer, "/") + "/.well-known/openid-configuration",
		wellKnown(k.Issuer, "/.well-known/oauth-authorization-server"),
	} {
		url, err := k.discoverAt(ctx, at)
		if err == nil {
			return url, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// discoverAt refuses metadata of another issuer (RFC 8414, 3.3), and metadata of
// a remote issuer that names a URL on this machine.
func (k *issuer) discoverAt(ctx context.Context, at string) (string, error) {
	var metadata struct {
		Issuer string `json:"issuer"`
		JWKS   string `json:"jwks_uri"`
	}
	if err := k.get(ctx, at, &metadata); err != nil {
		return "", err
	}

	u, err := secureURL("jwks_uri", metadata.JWKS)
	switch {
	case metadata.Issuer != k.Issuer:
		return "", fmt.Errorf("%s: metadata of the issuer %q", at, metadata.Issuer)
	case err != nil:
		return "", fmt.Errorf("%s: %w", at, err)
	case u.Scheme != "https" && !strings.HasPrefix(k.Issuer, "http:"):
		return "", fmt.Errorf("%s: jwks_uri: %q is not https", at, metadata.JWKS)
	}
	return metadata.JWKS, nil
}

// get fetches a JSON object.
func (k *issuer) get(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}

	req.Header.Set("Accept", "application/json")
	resp, err := k.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	data, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, maxKeysBytes))
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}
