package grant

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/egress"
)

// DefaultMaxBody is the default of HTTPRule.MaxBody, in bytes.
const DefaultMaxBody = egress.DefaultMaxBody

// HTTPRule allows HTTP requests of a plugin. Zero fields allow as little as possible.
type HTTPRule struct {
	// URL is https://HOST[:PORT]/PATH. http:// allows plain HTTP, but not HTTPS. HOST
	// is a name, an address, "*.example.com" for exactly one more label, or "*" for
	// every name with a dot. PORT is needed unless it is the default of the scheme. A *
	// in PATH matches any part of one segment, and a final /* everything below.
	URL string
	// Methods are in upper case; "*" means all. GET includes HEAD. Empty means GET and
	// HEAD.
	Methods []string
	// Secret is the name of the secret that is added to the requests; see Secrets of package host.
	Secret string
	// MaxBody limits one body in either direction, in bytes, at most 256 MiB. Zero
	// means 4 MiB.
	MaxBody int64
	// Private also allows loopback and private addresses of HOST, which must not be
	// "*". Link-local addresses and those of metadata services must be given literally
	// as HOST.
	Private bool
}

// httpCapability grants HTTP requests by rules.
var httpCapability = Capability{
	Name: "http", Doc: "requests over HTTP",
	Missing: func(n abi.Needs, g Grant) (missing []string) {
		for _, need := range lackingHTTP(n, g) {
			missing = append(missing, httpText(need.URL, need.Methods))
		}
		return missing
	},
	Lacking: func(n abi.Needs, g Grant, add *Grant) {
		add.HTTP = rulesOf(lackingHTTP(n, g))
	},
	Granted: func(g Grant) (names []string) {
		for _, r := range g.HTTP {
			names = append(names, httpText(r.URL, r.Methods))
		}
		return names
	},
	Check: func(g Grant) (problems []GrantProblem) {
		for i, rule := range g.Rules() {
			_, err := egress.Compile([]egress.Rule{rule})
			if wrong, ok := errors.AsType[*egress.RuleError](err); ok {
				problems = append(problems, GrantProblem{fmt.Sprintf("http.%d.%s", i, wrong.Key), wrong.Problem})
			}
		}
		return problems
	},
	Writes: func(g Grant) bool {
		return slices.ContainsFunc(g.HTTP, func(r HTTPRule) bool {
			return slices.ContainsFunc(r.Methods, func(m string) bool { return m != "GET" && m != "HEAD" })
		})
	},
}

// Rules returns the HTTP rules of a grant in egress's form.
func (g Grant) Rules() []egress.Rule {
	rules := make([]egress.Rule, len(g.HTTP))
	for i, r := range g.HTTP {
		rules[i] = egress.Rule(r)
	}
	return rules
}

// Public reports whether the plugin can reach public addresses: an open world in terms of
// MCP.
func (g Grant) Public() bool {
	return slices.ContainsFunc(g.HTTP, func(r HTTPRule) bool { return !r.Private })
}

// lackingHTTP returns the needs that the grant's rules do not cover.
func lackingHTTP(n abi.Needs, g Grant) (lacking []abi.HTTPNeed) {
	if len(n.HTTP) == 0 {
		return nil
	}

	policy, _ := egress.Compile(g.Rules()) // invalid rules cover nothing
	for _, need := range n.HTTP {
		if !policy.Covers(egress.Rule{URL: need.URL, Methods: need.Methods}) {
			lacking = append(lacking, need)
		}
	}
	return lacking
}

// rulesOf returns rules that admit the needs.
func rulesOf(needs []abi.HTTPNeed) (rules []HTTPRule) {
	for _, need := range needs {
		rules = append(rules, HTTPRule{URL: need.URL, Methods: need.Methods, Private: isPrivate(need.URL)})
	}
	return rules
}

// CheckNeeds returns an error for needs of a plugin or its tools that no grant could
// cover.
func CheckNeeds(m *abi.Manifest) error {
	err := checkNeeds("/needs", m.Needs)
	for i := range m.Tools {
		if err == nil {
			err = checkNeeds(fmt.Sprintf("/tools/%d/needs", i), m.Tools[i].Needs)
		}
	}
	return err
}

func checkNeeds(at string, n abi.Needs) error {
	for i, need := range n.HTTP {
		_, err := egress.Compile([]egress.Rule{{URL: need.URL, Methods: need.Methods, Private: isPrivate(need.URL)}})
		if wrong, ok := errors.AsType[*egress.RuleError](err); ok {
			return &abi.ManifestError{Problems: []abi.Problem{{Pointer: fmt.Sprintf("%s/http/%d/%s", at, i, wrong.Key), Message: wrong.Problem}}}
		}
	}
	if n.Optional == nil {
		return nil
	}
	return checkNeeds(at+"/optional", *n.Optional)
}

// isPrivate reports whether a rule for the URL can only admit something if it is
// private: its host is a non-public address, or a name without a dot.
func isPrivate(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, ":")
	if !strings.Contains(rest, "[") && host != "*" && !strings.Contains(host, ".") {
		return true
	}
	_, err := egress.Compile([]egress.Rule{{URL: url}})
	_, private := egress.Compile([]egress.Rule{{URL: url, Private: true}})
	return err != nil && private == nil
}

// httpText formats a need or a rule for an operator.
func httpText(url string, methods []string) string {
	if len(methods) == 0 {
		methods = []string{"GET"}
	}
	return fmt.Sprintf("http %s %s", strings.Join(methods, ","), url)
}
