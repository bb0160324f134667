package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Caller is who sent a request: the operator, or a user of the OAuth issuer.
// The operator is who comes over the unix socket, from this machine where no
// login is configured, or with the static token.
//
// A user has sessions of its own: what a user calls x, the service and the
// operator know as USER/x. No name of a session has a slash, so that no user
// can name another's.
type Caller struct {
	User string // the user's key; empty: the operator

	until time.Time // when its token ends; zero: it does not
}

// Operator reports whether the caller may do everything.
func (c Caller) Operator() bool { return c.User == "" }

// expired reports whether the caller's token has ended since it was looked at.
func (c Caller) expired() bool { return !c.until.IsZero() && !time.Now().Before(c.until) }

// nobody is who sent a request that needs no login, and whoever it is that a
// context does not say. No user has that key.
var nobody = Caller{User: "?"}

type callerKey struct{}

func withCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns who sent the request of a context. In a context that is not
// of a request of an [API] it is nobody: neither the operator nor a user.
func CallerOf(ctx context.Context) Caller {
	if c, ok := ctx.Value(callerKey{}).(Caller); ok {
		return c
	}
	return nobody
}

// The forms of names. A user's key is as long as it is here whatever the
// issuer calls the user, see userKey.
const (
	sessionName = `[A-Za-z0-9._:@-]{1,128}`
	plainUser   = `[A-Za-z0-9._:@-]{1,64}`
	hashedUser  = `~[0-9a-f]{64}`
)

var (
	sessionForm    = regexp.MustCompile(`^` + sessionName + `$`)
	sessionKeyForm = regexp.MustCompile(`^(?:(?:` + plainUser + `|` + hashedUser + `)/)?` + sessionName + `$`)
	plainUserForm  = regexp.MustCompile(`^` + plainUser + `$`)
)

// userKey is how a user is known here, by the subject of its tokens. One with
// other characters than names of sessions have, or a long one, is known by its
// hash: all of it, as users may choose their subjects and look for two that
// collide. The tilde keeps anybody from having such a hash for a subject.
func userKey(subject string) string {
	if plainUserForm.MatchString(subject) {
		return subject
	}
	sum := sha256.Sum256([]byte(subject))
	return "~" + hex.EncodeToString(sum[:])
}

// sessionKey is what the service knows a session of the caller by.
func (c Caller) sessionKey(name string) string {
	if c.Operator() {
		return name
	}
	return c.User + "/" + name
}

// sessionName is what the caller calls a session: users are not shown their own
// key, and see no sessions but their own.
func (c Caller) sessionName(key string) string {
	if c.Operator() {
		return key
	}
	return strings.TrimPrefix(key, c.User+"/")
}

// sessionOf is the name of the session that a request is for. Operators may
// name a user's: USER/SESSION.
func sessionOf(r *http.Request) (string, error) {
	named := r.Header.Values(SessionHeader)
	if len(named) == 0 || len(named) == 1 && named[0] == "" {
		return DefaultSession, nil
	}
	form := sessionForm
	if CallerOf(r.Context()).Operator() {
		form = sessionKeyForm
	}
	if len(named) > 1 || !form.MatchString(named[0]) {
		return "", invalid(SessionHeader, "expected 1 to 128 letters, digits and . _ : @ -")
	}
	return named[0], nil
}

// UntilOf returns when the token of a request ends, for a handler of another
// protocol: a stream that was asked for with it is not to go on beyond that. It
// is zero for one that does not end.
func UntilOf(r *http.Request) time.Time { return CallerOf(r.Context()).until }

// SessionOf returns what a handler of another protocol, see [Config], has to
// know of a request: the key of its session, which is all that its runs are
// found by, and who sent it.
func SessionOf(r *http.Request) (session, user string) {
	c := CallerOf(r.Context())
	name, err := sessionOf(r)
	if err != nil {
		c, name = nobody, DefaultSession // the API refuses it before
	}
	return c.sessionKey(name), c.User
}
