package identity

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/toolhost/toolhost/server/wire"
)

// Config configures an [Authenticator]. Its zero value requires no login.
type Config struct {
	Token  string       // the operator's static token; empty for none
	OAuth  *OAuth       // issuer of accepted access tokens; nil for none
	Logger *slog.Logger // destination of messages for the operator; nil discards them
}

// An Authenticator checks credentials. It is safe for concurrent use.
type Authenticator struct {
	token  StaticToken
	oauth  *issuer         // nil without an OAuth configuration
	ctx    context.Context // when done, ends requests to the issuer
	cancel context.CancelFunc
}

// New returns an Authenticator; close it after use. If the OAuth configuration is
// invalid, see [OAuth.Check], it logs why and accepts no access token.
func New(cfg Config) *Authenticator {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}

	a := &Authenticator{token: NewStaticToken(cfg.Token)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	if cfg.OAuth != nil {
		a.oauth = newIssuer(a.ctx, *cfg.OAuth, cfg.Logger)
	}
	return a
}

// Close cancels requests to the issuer. It may be called again.
func (a *Authenticator) Close() { a.cancel() }

// Required reports whether callers have to log in.
func (a *Authenticator) Required() bool { return a.token.Set() || a.oauth != nil }

// An Error reports a refused login. Neither Detail nor Challenge quotes the credentials.
type Error struct {
	Code      wire.Code // unauthorized, insufficient_scope, issuer_unavailable, closing; or invalid if the header Authorization was sent twice
	Detail    string    // text for the caller
	Challenge string    // the value of WWW-Authenticate; empty for none
}

// Error returns the detail.
func (e *Error) Error() string { return e.Detail }

// Login returns the caller that the values of the header Authorization identify. The caller
// is in no session yet. If browser is true, the static token may also be sent as a
// password. The error is an [Error], or the error of ctx.
func (a *Authenticator) Login(ctx context.Context, header []string, browser bool) (Caller, error) {
	if len(header) > 1 { // a proxy may have checked the other one (RFC 6750, 3.1)
		return Nobody, a.refuse(wire.CodeInvalid, "invalid_request", "more than one header Authorization")
	}

	credentials := strings.TrimSpace(strings.Join(header, ""))
	scheme, token, _ := strings.Cut(credentials, " ")
	token = strings.TrimSpace(token)
	bearer := strings.EqualFold(scheme, "Bearer") && token != ""
	browser = browser && a.token.Set()
	switch {
	case browser && a.token.Matches(password(credentials)), bearer && a.token.Matches(token):
		return Caller{}, nil
	case bearer && a.oauth != nil:
		return a.loginUser(ctx, token, browser)
	case browser:
		return Nobody, basicLogin()
	case a.oauth == nil:
		return Nobody, a.refuse(wire.CodeUnauthorized, "", "send the server's token as Authorization: Bearer …")
	}
	return Nobody, a.refuse(wire.CodeUnauthorized, "", "send an access token of "+a.oauth.Issuer+" as Authorization: Bearer …")
}

// loginUser checks an access token.
func (a *Authenticator) loginUser(ctx context.Context, token string, browser bool) (Caller, error) {
	caller, err := a.oauth.verify(ctx, token)
	switch {
	case err == nil:
		return caller, nil
	case ctx.Err() != nil:
		return Nobody, ctx.Err()
	case errors.Is(err, errScope):
		e := a.refuse(wire.CodeScope, "insufficient_scope", err.Error())
		e.Detail += ": it needs " + strings.Join(a.oauth.Scopes, " ")
		return Nobody, e
	case errors.Is(err, errNoKeys) && a.ctx.Err() != nil:
		return Nobody, &Error{Code: wire.CodeClosing, Detail: "the server is shutting down"}
	case errors.Is(err, errNoKeys):
		return Nobody, &Error{Code: wire.CodeIssuer, Detail: "tokens cannot be checked now, because the keys of their issuer are not available: try again later"}
	case browser:
		return Nobody, basicLogin()
	}
	return Nobody, a.refuse(wire.CodeUnauthorized, "invalid_token", err.Error())
}

// Expired returns the error for a caller whose token has expired.
func (a *Authenticator) Expired() error {
	return a.refuse(wire.CodeUnauthorized, "invalid_token", errTime.Error())
}

func (a *Authenticator) refuse(code wire.Code, oauth, detail string) *Error {
	e := &Error{Code: code, Detail: detail, Challenge: `Bearer realm="toolhost"`}
	if a.oauth != nil {
		e.Challenge = a.oauth.challenge(oauth, detail)
	}
	return e
}

// basicLogin makes a browser ask for the token (RFC 7617, 2.1).
func basicLogin() *Error {
	return &Error{wire.CodeUnauthorized, "log in with the server's token as the password, and any name", `Basic realm="toolhost", charset="UTF-8"`}
}

// password returns the password of basic credentials; empty for other credentials.
func password(credentials string) string {
	r := http.Request{Header: http.Header{"Authorization": {credentials}}}
	_, password, _ := r.BasicAuth()
	return password
}

// Metadata returns the OAuth metadata of this server, or nil if OAuth is not configured.
func (a *Authenticator) Metadata() *Metadata {
	if a.oauth == nil {
		return nil
	}
	o := a.oauth.OAuth
	return &Metadata{
		Resource: o.Audience, AuthorizationServers: []string{o.Issuer}, ScopesSupported: o.Scopes,
		BearerMethods: []string{"header"}, ResourceName: "Toolhost",
	}
}
