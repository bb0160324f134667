package egress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Rule admits requests. Zero fields admit as little as possible.
type Rule struct {
	// URL is https://HOST[:PORT]/PATH. http:// admits plain http, but not https.
	//
	// HOST is a name, an address, "*.example.com" for names with exactly one label in
	// place of the "*", or "*" for every name with a dot. PORT is needed unless it is the
	// scheme's default.
	//
	// PATH is compared after normalization, segment by segment. A * matches any part
	// of one segment, but not an empty segment or an encoded slash. A final /*
	// matches everything below it.
	URL string

	// Methods are in upper case; "*" means all. GET includes HEAD. Empty means GET and
	// HEAD.
	Methods []string

	// Secret is the name of the secret that is added to the requests.
	Secret string

	// MaxBody is the maximum size of a body in either direction, in bytes. It is at most
	// [MaxBodyLimit]; zero means [DefaultMaxBody].
	MaxBody int64

	// Private also allows loopback and private addresses of HOST, which must not be
	// "*". Other special addresses, such as link-local ones and those of metadata
	// services, must be given literally as HOST. Multicast and unspecified addresses
	// are never admitted.
	Private bool
}

// Policy is a compiled list of rules. It is immutable. Nil refuses everything.
type Policy struct {
	rules []rule // most specific first
}

type rule struct {
	Rule
	pattern target // URL as a target, which may have a wildcard host
}

// Compile checks and compiles rules. The error is a [*RuleError].
func Compile(rules []Rule) (*Policy, error) {
	p := &Policy{}
	for i, r := range rules {
		c, err := compile(r)
		if err != nil {
			err.Index = i
			return nil, err
		}
		p.rules = append(p.rules, c)
	}

	slices.SortStableFunc(p.rules, func(a, b rule) int {
		return cmp.Or(
			cmp.Compare(hostRank(b.pattern.host), hostRank(a.pattern.host)),
			cmp.Compare(literalLen(b.pattern.path), literalLen(a.pattern.path)),
		)
	})
	return p, nil
}

func compile(r Rule) (rule, *RuleError) {
	fail := func(key, format string, args ...any) (rule, *RuleError) {
		return rule{}, &RuleError{Key: key, Problem: fmt.Sprintf(format, args...)}
	}

	pattern, err := parsePattern(r.URL)
	if err != nil {
		return fail("url", "%v", err)
	}
	methods, err := checkMethods(r.Methods)
	if err != nil {
		return fail("methods", "%v", err)
	}

	switch {
	case r.MaxBody < 0 || r.MaxBody > MaxBodyLimit:
		return fail("max_body", "%d: want 0 to %d bytes", r.MaxBody, int64(MaxBodyLimit))
	case r.Private && pattern.host == "*":
		return fail("private", `a rule for every host cannot be private: name the host, for example "*.corp.example"`)
	case pattern.addr.IsValid():
		if err := admitAddress(pattern.addr, r.Private, pattern.addr); err != nil {
			return fail("url", "%v", err)
		}
	}

	r.Methods = methods
	return rule{Rule: r, pattern: pattern}, nil
}

func checkMethods(methods []string) ([]string, error) {
	if len(methods) == 0 {
		return []string{"GET", "HEAD"}, nil
	}
	for _, m := range methods {
		if m == "*" {
			continue
		}
		if err := checkMethod(m); err != nil {
			return nil, err
		}
	}
	return slices.Clone(methods), nil
}

// hostRank orders host patterns by how few hosts they match.
func hostRank(host string) int {
	switch {
	case host == "*":
		return 0
	case strings.HasPrefix(host, "*."):
		return 1
	}
	return 2
}

func literalLen(path string) int {
	if i := strings.IndexByte(path, '*'); i >= 0 {
		return i
	}
	return len(path) + 1 // an exact path is more specific than the prefix of the same length
}

// hasSecret reports whether a rule has a secret. A server may echo it to requests under
// any other rule.
func (p *Policy) hasSecret() bool {
	return p != nil && slices.ContainsFunc(p.rules, func(r rule) bool { return r.Secret != "" })
}

// Covers reports whether p admits every request that need admits. A need for every public host
// ("*") leaves the choice of hosts to p: for each method, one rule with the same scheme is
// enough. Only the fields URL and Methods of need count. An invalid need is not covered.
func (p *Policy) Covers(need Rule) bool {
	pattern, badURL := parsePattern(need.URL)
	methods, badMethod := checkMethods(need.Methods)
	if badURL != nil || badMethod != nil || p == nil {
		return false
	}
	return !slices.ContainsFunc(methods, func(m string) bool {
		return !slices.ContainsFunc(p.rules, func(r rule) bool { return r.admitsMethod(m) && r.pattern.serves(&pattern) })
	})
}

func (r *rule) admitsMethod(method string) bool {
	return slices.ContainsFunc(r.Methods, func(m string) bool {
		return m == method || m == "*" || m == "GET" && method == "HEAD"
	})
}

// find returns the most specific rule for a request, or the reason why none admits it. The
// rule must also admit overrides, the methods that a server may use instead.
func (p *Policy) find(t *target, method string, overrides ...string) (*rule, Reason) {
	reason := ReasonURL
	if p == nil {
		return nil, reason
	}

	for i := range p.rules {
		r := &p.rules[i]
		if !r.pattern.matches(t) {
			continue
		}
		reason = ReasonMethod
		if !r.admitsMethod(method) {
			continue
		}
		if slices.ContainsFunc(overrides, func(m string) bool { return !r.admitsMethod(m) }) {
			break
		}
		return r, ""
	}
	return nil, reason
}

// serves reports whether t admits everything that a need admits. Both are patterns.
func (t *target) serves(need *target) bool {
	return t.matches(need) || need.host == "*" && t.scheme == need.scheme
}

func (t *target) matches(u *target) bool {
	if t.scheme != u.scheme || t.port != u.port || !matchHost(t.host, u) {
		return false
	}
	return matchPath(t.path, u.path)
}

func matchHost(pattern string, t *target) bool {
	suffix, wildcard := strings.CutPrefix(pattern, "*")
	switch {
	case !wildcard || t.addr.IsValid():
		return pattern == t.host
	case suffix == "":
		return strings.Contains(t.host, ".")
	}
	label, found := strings.CutSuffix(t.host, suffix)
	return found && label != "" && !strings.Contains(label, ".")
}

// matchHosts reports whether the hosts of a secret include that of t.
func matchHosts(hosts []string, t *target) bool {
	return slices.ContainsFunc(hosts, func(h string) bool {
		p, err := parseHostPattern(h)
		return err == nil && p.host != "*" && matchHost(p.host, t)
	})
}

// CheckHosts checks the hosts of a secret.
func CheckHosts(hosts []string) error {
	if len(hosts) == 0 {
		return fmt.Errorf(`no hosts: name those that may get the secret, for example "api.example.com"`)
	}
	for _, h := range hosts {
		p, err := parseHostPattern(h)
		if err != nil {
			return err
		}
		if p.host == "*" {
			return fmt.Errorf(`host "*": a secret needs named hosts, for example "api.example.com" or "*.example.com"`)
		}
	}
	return nil
}

// Patch returns the line of YAML below grants.PLUGIN that would admit the requests that need
// admits.
func Patch(need Rule) string {
	rule := fmt.Sprintf("url: %q", need.URL)
	if len(need.Methods) > 0 {
		rule += ", methods: [" + strings.Join(need.Methods, ", ") + "]"
	}
	if need.Private {
		rule += ", private: true"
	}
	return "http: [{" + rule + "}]"
}
