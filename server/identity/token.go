package identity

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json" // case-sensitive, refuses duplicate names
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	maxToken  = 16 << 10         // bytes of a token
	clockSkew = 30 * time.Second // tolerated difference between the issuer's clock and ours
)

// algorithms lists the accepted signature algorithms: not "none", and none with a shared
// secret, because a public key could be passed off as one (RFC 8725, 2.1, 3.1).
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.EdDSA,
}

// Reasons to refuse a token, without its content.
var (
	errForm  = errors.New("the token is not a signed JWT of an accepted algorithm")
	errTime  = errors.New("the token has expired, or is not valid yet")
	errScope = errors.New("the token does not have all required scopes")
)

// claims holds the claims of a token that are checked (RFC 9068, 2.2; RFC 7519, 4.1).
type claims struct {
	jwt.Claims
	Scope        scopes          `json:"scope"`
	Scp          scopes          `json:"scp"` // used by some issuers instead of scope
	Confirmation json.RawMessage `json:"cnf"`

	// These claims exist only in ID tokens and security events.
	TokenHash json.RawMessage `json:"at_hash"`
	CodeHash  json.RawMessage `json:"c_hash"`
	Nonce     json.RawMessage `json:"nonce"`
	Events    json.RawMessage `json:"events"`
}

// scopes is a list of scopes, in JSON either a list or a string separated by spaces.
type scopes []string

// UnmarshalJSON reads either form. Anything else counts as no scopes.
func (s *scopes) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*s = strings.Fields(text)
		return nil
	}

	var list []string
	if json.Unmarshal(data, &list) == nil {
		*s = list
	}
	return nil
}

// verify returns the user of a token. It checks the claims before it needs keys,
// so that only a token issued for this server can cause a request to the issuer.
// The error is for the caller, or it is errNoKeys or the error of ctx.
func (k *issuer) verify(ctx context.Context, token string) (Caller, error) {
	switch {
	case !k.valid:
		return Nobody, errNoKeys
	case len(token) > maxToken:
		return Nobody, errors.New("the token is too long")
	}

	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return Nobody, errForm
	}

	header := jws.Signatures[0].Protected // compact: exactly one
	claims, err := k.check(header, jws.UnsafePayloadWithoutVerification())
	if err != nil {
		return Nobody, err
	}

	keys, err := k.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return Nobody, err
	}
	signed := slices.ContainsFunc(keys, func(key jose.JSONWebKey) bool {
		_, err := jws.Verify(key) // the payload is the one checked above
		return err == nil
	})
	switch {
	case !signed:
		return Nobody, errors.New("the token is not signed by a key of the issuer")
	case !k.inScope(claims):
		return Nobody, errScope
	}
	return Caller{User: userKey(claims.Subject), Until: claims.Expiry.Time().Add(clockSkew)}, nil
}

// check decodes and checks the claims of a token (RFC 9068, 4).
func (k *issuer) check(header jose.Header, payload []byte) (claims, error) {
	var c claims
	if json.Unmarshal(payload, &c) != nil {
		return c, errForm
	}

	typ, _ := header.ExtraHeaders[jose.HeaderType].(string)
	typ = strings.TrimPrefix(strings.ToLower(typ), "application/") // RFC 7515, 4.1.9
	_, typed := header.ExtraHeaders[jose.HeaderType]
	foreign := c.TokenHash != nil || c.CodeHash != nil || c.Nonce != nil || c.Events != nil
	switch {
	case typed && typ != "jwt" && typ != "at+jwt", typ != "at+jwt" && foreign: // RFC 8725, 3.11
		return c, errors.New("the token is not an access token")
	case c.Issuer != k.Issuer:
		return c, errors.New("the token is from another issuer")
	case !slices.Contains(c.Audience, k.Audience):
		return c, errors.New("the token is for another resource")
	case c.Subject == "":
		return c, errors.New("the token has no subject")
	case c.Confirmation != nil: // the caller would have to prove possession of the key (RFC 9449, 7.2; RFC 8705, 3)
		return c, errors.New("the token is bound to a key, and bearer tokens must not be")
	case c.Expiry == nil, c.ValidateWithLeeway(jwt.Expected{Time: time.Now()}, clockSkew) != nil:
		return c, errTime
	}
	return c, nil
}

func (k *issuer) inScope(c claims) bool {
	return !slices.ContainsFunc(k.Scopes, func(want string) bool {
		return !slices.Contains(c.Scope, want) && !slices.Contains(c.Scp, want)
	})
}
