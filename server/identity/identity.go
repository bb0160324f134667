// Package identity determines the sender of a request (the operator or a user of an OAuth
// 2 issuer) and its session.
//
// A transport authenticates a request with an [Authenticator], resolves its session with
// [Caller.InSession] and passes the [Caller] on in the context. Transports mounted behind
// it get it with [FromContext].
package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/toolhost/toolhost/server/wire"
)

// Caller is the sender of a request. Its zero value is the operator, in no session.
//
// Users have their own sessions: the service and the operator know a user's session x by
// the key USER/x. A session name from a user has no slash, except after
// [wire.UnnamedPrefix], so no user can name another user's session.
type Caller struct {
	User    string    // the user's key; empty for the operator
	Session string    // the key of the session
	Unnamed bool      // the request named no session: Session is a new one
	DryRun  bool      // the request must change nothing
	Until   time.Time // when the caller's token expires; zero if it does not
}

// Nobody is the Caller for requests that need no login. No user has its key.
var Nobody = Caller{User: "?", Session: "?/" + wire.DefaultSession}

// Operator reports whether the caller is the operator, who may do everything.
func (c Caller) Operator() bool { return c.User == "" }

// Expired reports whether the caller's token has expired since it was checked.
func (c Caller) Expired() bool { return !c.Until.IsZero() && !time.Now().Before(c.Until) }

// Client returns the key of the client that limits count for. All sessions of a user are
// one client. Each session that the operator names is a client of its own, and the
// operator's other sessions together are one.
func (c Caller) Client() string {
	switch {
	case !c.Operator():
		return c.User + "/"
	case strings.HasPrefix(c.Session, wire.UnnamedPrefix):
		return wire.UnnamedPrefix
	}
	return c.Session
}

// Audience returns the session's key. If the request named no session, it returns the
// common prefix of the client's unnamed sessions, because the next request will be in
// another one.
func (c Caller) Audience() string {
	if before, _, ok := strings.Cut(c.Session, wire.UnnamedPrefix); ok && c.Unnamed {
		return before + wire.UnnamedPrefix
	}
	return c.Session
}

// The forms of names. Only the operator may name a user's session, as USER/NAME.
var (
	sessionForm    = regexp.MustCompile(`^(?:[A-Za-z0-9._:@-]{1,128}|~/[a-z2-7]{26})$`)
	anySessionForm = regexp.MustCompile(`^(?:(?:[A-Za-z0-9._:@-]{1,64}|~[0-9a-f]{64})/)?(?:[A-Za-z0-9._:@-]{1,128}|~/[a-z2-7]{26})$`)
	userForm       = regexp.MustCompile(`^[A-Za-z0-9._:@-]{1,64}$`)
	userKeyForm    = regexp.MustCompile(`^(?:[A-Za-z0-9._:@-]{1,64}|~[0-9a-f]{64})$`)
)

// IsUser reports whether name has the form of a user's name, as operators see it.
func IsUser(name string) bool { return userKeyForm.MatchString(name) }

// ErrSession reports an invalid session name.
var ErrSession = errors.New("expected 1 to 128 letters, digits and . _ : @ -")

// InSession returns the caller in the session with the given name. An empty name stands for
// a new session, whose name cannot be guessed. The error is [ErrSession].
func (c Caller) InSession(name string) (Caller, error) {
	form, prefix := anySessionForm, ""
	if !c.Operator() {
		form, prefix = sessionForm, c.User+"/"
	}

	if name == "" {
		c.Unnamed, name = true, wire.UnnamedPrefix+strings.ToLower(rand.Text())
	} else if !form.MatchString(name) {
		return Nobody, ErrSession
	}
	c.Session = prefix + name
	return c, nil
}

// SessionName returns the name by which the caller knows the session with this key. A
// user's sessions are named without the user's key, which users never see.
func (c Caller) SessionName(key string) string {
	if c.Operator() {
		return key
	}
	return strings.TrimPrefix(key, c.User+"/")
}

// userKey returns the key of the user with a subject. A long subject, or one with other
// characters than session names, is hashed in full, because users may choose it. The
// tilde keeps other subjects from looking like a hash.
func userKey(subject string) string {
	if userForm.MatchString(subject) {
		return subject
	}
	sum := sha256.Sum256([]byte(subject))
	return "~" + hex.EncodeToString(sum[:])
}

type callerKey struct{}

// NewContext returns a context that carries the caller.
func NewContext(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// FromContext returns the caller that a context carries. Without one, it returns [Nobody] in
// a new session.
func FromContext(ctx context.Context) Caller {
	if c, ok := ctx.Value(callerKey{}).(Caller); ok {
		return c
	}
	c, _ := Nobody.InSession("")
	return c
}

// Loopback reports whether a host, with or without a port, is localhost or a loopback address.
func Loopback(hostport string) bool {
	name, _, err := net.SplitHostPort(hostport)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	if strings.EqualFold(strings.TrimSuffix(name, "."), "localhost") {
		return true
	}

	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsLoopback()
}
