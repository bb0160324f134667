package egress

import (
	"errors"
	"fmt"
)

// ErrNoSecret is the reason for a [SecretError] about a secret that has no value yet.
var ErrNoSecret = errors.New("no value")

// ErrClosed is returned by Do after Close.
var ErrClosed = errors.New("egress: closed")

// RuleError reports an invalid rule.
type RuleError struct {
	Index   int    // index of the rule
	Key     string // invalid field, in snake case: "url", "methods", "max_body", "private"
	Problem string
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("http[%d].%s: %s", e.Index, e.Key, e.Problem)
}

// Reason is why a request was refused.
type Reason string

// The reasons for a [Refusal].
const (
	ReasonURL      Reason = "url"      // no rule admits the URL
	ReasonMethod   Reason = "method"   // rules admit the URL, but not with this method
	ReasonReadonly Reason = "readonly" // the tool is readonly
	ReasonAddress  Reason = "address"  // the rule does not admit the host's address
	ReasonSecret   Reason = "secret"   // the secret is not for this host, or not over http
	ReasonRedirect Reason = "redirect" // a redirect that would leak a secret
)

// Refusal reports a request that the rules do not admit.
type Refusal struct {
	Reason Reason
	What   string // a sentence for the agent: what was refused
	Grant  string // YAML below grants.PLUGIN that would admit it; empty if nothing would
	Detail string // details for the operator's log
}

func (r *Refusal) Error() string {
	if r.Grant == "" {
		return r.What
	}
	return r.What + "; the operator can allow it with: " + r.Grant
}

// RequestError reports a request that is invalid under any rules.
type RequestError struct {
	Field   string // invalid part: "url", "method", "headers" or "body"
	Problem string
}

func (e *RequestError) Error() string { return e.Field + ": " + e.Problem }

// LimitError reports a value over its limit.
type LimitError struct {
	What  string // what exceeds the limit, such as "response body of api.example.com"
	Limit int64
	Unit  string // unit of Limit, such as "bytes" or "requests"
	Grant string // the grant field that raises the limit, such as "max_body"; empty if none does
}

func (e *LimitError) Error() string {
	s := fmt.Sprintf("%s: more than %d %s", e.What, e.Limit, e.Unit)
	if e.Grant != "" {
		s += ": the operator can raise " + e.Grant + " in the http rule"
	}
	return s
}

// SecretError reports a secret that cannot be used.
type SecretError struct {
	Name string
	Err  error // matches ErrNoSecret if only the value is missing
}

func (e *SecretError) Error() string { return fmt.Sprintf("secret %q: %v", e.Name, e.Err) }
func (e *SecretError) Unwrap() error { return e.Err }

// WaitError reports that a call ended while its request was waiting for a permit.
type WaitError struct {
	For string // what the request was waiting for, and the remedy
	Err error  // error of the context
}

func (e *WaitError) Error() string { return "the http request was not sent: " + e.For }
func (e *WaitError) Unwrap() error { return e.Err }

// NetworkError reports an admitted request that failed.
type NetworkError struct {
	Host    string
	Problem string // what went wrong, for the agent: "connection refused", "no such host", "timeout" …
	Detail  string // details for the operator's log, masked

	// Refusal is set if the host has an address that the rule does not admit; it is for
	// the operator's log. The plugin must not see it: since its rule has a wildcard, the
	// plugin could otherwise probe which names exist in the operator's network.
	Refusal *Refusal
}

func (e *NetworkError) Error() string { return e.Host + ": " + e.Problem }
