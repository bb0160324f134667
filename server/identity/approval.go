package identity

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// MinApprovalToken is the minimum length of an approval token, in bytes.
const MinApprovalToken = 16

// Limits on wrong tokens: at first a number of guesses, then one per guessEvery. Beyond
// them, no token is checked, so that the right one cannot be found by trying.
const (
	guesses    = 10
	guessEvery = 10 * time.Second
)

// Reasons to reject an approval token.
var (
	ErrNoApprovalToken   = errors.New("there is no token for approvals")
	ErrApprovalToken     = errors.New("that is not the token for approvals")
	ErrTooManyGuesses    = errors.New("too many wrong tokens for approvals: try again later")
	ErrWeakApprovalToken = fmt.Errorf("a token for approvals has at least %d bytes", MinApprovalToken)
	noGuesses            = rate.Every(guessEvery)
)

// An ApprovalToken authorizes requests over TCP to decide on calls that wait for
// approval. It is safe for concurrent use. The zero value accepts no token.
type ApprovalToken struct {
	token StaticToken
	wrong *rate.Limiter
}

// NewApprovalToken returns the ApprovalToken with the given text. If the text is empty, it
// accepts no token. The error is [ErrWeakApprovalToken] if the text is too short.
func NewApprovalToken(token string) (*ApprovalToken, error) {
	switch {
	case token == "":
		return &ApprovalToken{}, nil
	case len(token) < MinApprovalToken:
		return nil, ErrWeakApprovalToken
	}
	return &ApprovalToken{NewStaticToken(token), rate.NewLimiter(noGuesses, guesses)}, nil
}

// Set reports whether a token is configured.
func (t *ApprovalToken) Set() bool { return t != nil && t.token.Set() }

// Check compares a text with the token in constant time. It returns nil if they match, or
// [ErrNoApprovalToken], [ErrApprovalToken] or [ErrTooManyGuesses].
func (t *ApprovalToken) Check(text string) error {
	if !t.Set() {
		return ErrNoApprovalToken
	}
	if t.wrong.Tokens() < 1 {
		return ErrTooManyGuesses
	}
	if t.token.Matches(text) {
		return nil
	}
	if !t.wrong.Allow() {
		return ErrTooManyGuesses
	}
	return ErrApprovalToken
}
