package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json" // "Sub" is not "sub", and nothing is there twice
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	maxToken  = 16 << 10         // bytes of a token
	clockSkew = 30 * time.Second // how far the issuer's clock may be from ours
)

// algorithms are those that a token may be signed by: no "none", and none whose
// key is a secret, or a public key could be passed off as one (RFC 8725, 2.1,
// 3.1).
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.EdDSA,
}

// Why a token is refused. What clients are told of it is no more than this: not
// what was found in the token.
var (
	errTokenForm     = errors.New("the token is not a signed JWT that is taken here")
	errTokenType     = errors.New("the token is not an access token")
	errTokenIssuer   = errors.New("the token is of another issuer")
	errTokenAudience = errors.New("the token is for another resource")
	errTokenTime     = errors.New("the token has expired, or is not valid yet")
	errTokenSubject  = errors.New("the token does not say whose it is")
	errTokenBound    = errors.New("the token is bound to a key, which bearer tokens are not")
	errTokenSigned   = errors.New("the token is not signed by a key of the issuer")
	errTokenScope    = errors.New("the token does not have all scopes")
)

// claims are what is looked at of a token (RFC 9068, 2.2; RFC 7519, 4.1).
type claims struct {
	jwt.Claims
	Scope        scopes          `json:"scope"`
	Scp          scopes          `json:"scp"` // as some issuers call it
	Confirmation json.RawMessage `json:"cnf"`

	// Only what is no access token has these: ID tokens, and notices of events.
	TokenHash json.RawMessage `json:"at_hash"`
	CodeHash  json.RawMessage `json:"c_hash"`
	Nonce     json.RawMessage `json:"nonce"`
	Events    json.RawMessage `json:"events"`
}

// scopes are separated by spaces, or in a list.
type scopes []string

// UnmarshalJSON reads either form. What is neither has no scopes.
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

// verifier checks tokens. It is safe for concurrent use.
type verifier struct {
	OAuth
	keys *keySet
	err  error // what is wrong with the configuration: then no token is taken
}

// newVerifier returns a verifier that asks the issuer until ctx is done.
func newVerifier(ctx context.Context, o OAuth, log *slog.Logger) *verifier {
	v := &verifier{OAuth: o, keys: newKeySet(ctx, o, log), err: o.Check()}
	if v.err != nil {
		log.Error("no access token is taken: the OAuth configuration is wrong", "error", v.err)
	}
	return v
}

// verify returns whose token it is. What can be seen without the keys is looked
// at first, so that only a token that claims to be for us makes us ask the
// issuer for them. Its error is one of those above, or errNoKeys.
func (v *verifier) verify(ctx context.Context, token string) (Caller, error) {
	if v.err != nil {
		return nobody, v.err
	}
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil || len(jws.Signatures) != 1 {
		return nobody, errTokenForm
	}
	header := jws.Signatures[0].Protected
	now := time.Now()
	if _, err := v.claims(header, jws.UnsafePayloadWithoutVerification(), now); err != nil {
		return nobody, err
	}
	keys, err := v.keys.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return nobody, err
	}
	for _, key := range keys {
		payload, err := jws.Verify(key)
		if err != nil {
			continue
		}
		c, err := v.claims(header, payload, now)
		if err != nil {
			return nobody, err
		}
		caller := Caller{User: userKey(c.Subject), until: c.Expiry.Time().Add(clockSkew)}
		if !v.inScope(c) {
			return caller, errTokenScope
		}
		return caller, nil
	}
	return nobody, errTokenSigned
}

// claims reads and checks what a token says, as RFC 9068, 4 has it.
func (v *verifier) claims(header jose.Header, payload []byte, now time.Time) (claims, error) {
	var c claims
	if json.Unmarshal(payload, &c) != nil {
		return c, errTokenForm
	}
	typ, _ := header.ExtraHeaders[jose.HeaderType].(string)
	typ = strings.TrimPrefix(strings.ToLower(typ), "application/") // RFC 7515, 4.1.9
	_, typed := header.ExtraHeaders[jose.HeaderType]
	foreign := c.TokenHash != nil || c.CodeHash != nil || c.Nonce != nil || c.Events != nil
	switch {
	case typed && typ != "jwt" && typ != "at+jwt", typ != "at+jwt" && foreign: // RFC 8725, 3.11
		return c, errTokenType
	case c.Issuer != v.Issuer:
		return c, errTokenIssuer
	case !slices.Contains(c.Audience, v.Audience):
		return c, errTokenAudience
	case c.Subject == "":
		return c, errTokenSubject
	case c.Confirmation != nil: // RFC 9449, 7.2; RFC 8705, 3: who sends it would have to prove that it has the key
		return c, errTokenBound
	case c.Expiry == nil, c.ValidateWithLeeway(jwt.Expected{Time: now}, clockSkew) != nil:
		return c, errTokenTime
	}
	return c, nil
}

func (v *verifier) inScope(c claims) bool {
	for _, want := range v.Scopes {
		if !slices.Contains(c.Scope, want) && !slices.Contains(c.Scp, want) {
			return false
		}
	}
	return true
}
