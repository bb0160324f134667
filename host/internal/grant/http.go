package grant

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/egress"
)

// HTTPRule allows HTTP requests of a plugin. Zero fields allow as little as possible.
type HTTPRule = egress.Rule

// httpCapability grants HTTP requests by rules.
var httpCapability = Capability{
	Name: "http", Doc: "requests over HTTP",
	Missing: func(n abi.Needs, g Grant) []string { return texts(lackingHTTP(n, g), httpText) },
	Lacking: func(n abi.Needs, g Grant, add *Grant) { add.HTTP = lackingHTTP(n, g) },
	Granted: func(g Grant) []string { return texts(g.HTTP, httpText) },
	Check: func(g Grant) (problems []GrantProblem) {
		for i, rule := range g.HTTP {
			if wrong := problemOf(rule); wrong != nil {
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

// Public reports whether the plugin can reach public addresses, which MCP calls an open
// world.
func (g Grant) Public() bool {
	return slices.ContainsFunc(g.HTTP, func(r HTTPRule) bool { return !r.Private })
}

// lackingHTTP returns rules for the needs that the grant's rules do not cover.
func lackingHTTP(n abi.Needs, g Grant) (lacking []HTTPRule) {
	if len(n.HTTP) == 0 {
		return nil
	}

	policy, _ := egress.Compile(g.HTTP) // invalid rules cover nothing
	for _, rule := range rulesOf(n.HTTP) {
		if !policy.Covers(rule) {
			lacking = append(lacking, rule)
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

// problemOf returns what is wrong with a rule, or nil.
func problemOf(rule HTTPRule) *egress.RuleError {
	_, err := egress.Compile([]HTTPRule{rule})
	wrong, _ := errors.AsType[*egress.RuleError](err)
	return wrong
}

// CheckNeeds returns an error if the plugin or one of its tools has needs that no grant
// could cover.
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
	for i, rule := range rulesOf(n.HTTP) {
		if wrong := problemOf(rule); wrong != nil {
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
	return problemOf(HTTPRule{URL: url}) != nil && problemOf(HTTPRule{URL: url, Private: true}) == nil
}

func httpText(r HTTPRule) string {
	methods := r.Methods
	if len(methods) == 0 {
		methods = []string{"GET"}
	}
	return fmt.Sprintf("http %s %s", strings.Join(methods, ","), r.URL)
}
