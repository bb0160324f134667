package guesttest

import (
	"os"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/internal/egress"
)

// granted implements the operation "granted".
func (c *call) granted(request []byte) (any, error) {
	n, err := abi.DecodeNeeds(request)
	if err != nil {
		return nil, &guest.HostError{Code: "invalid", Message: err.Error()}
	}
	return map[string]bool{"granted": c.has(n)}, nil
}

// has reports whether the test's Host grants needs. The clock counts as granted if the capability
// "sleep" is.
func (c *call) has(n abi.Needs) bool {
	missing := n.Clock && c.Capabilities["sleep"] == nil || n.Ask && c.Answers == nil ||
		!c.Session.grants(n.Session, c.readonly) || !c.KV.grants(n.KV, c.readonly) ||
		slices.ContainsFunc(n.HTTP, func(h abi.HTTPNeed) bool { return !c.covers(h) }) ||
		slices.ContainsFunc(n.Files, func(f abi.FileNeed) bool {
			return c.Folders[f.Path] == "" || c.readonly && f.Mode == abi.FileWrite
		}) ||
		slices.ContainsFunc(n.Env, func(name string) bool { _, set := os.LookupEnv(name); return !set }) ||
		slices.ContainsFunc(n.Tools, func(name string) bool {
			return c.Tools[name] == nil && (name != abi.EveryTool || len(c.Tools) == 0)
		}) ||
		slices.ContainsFunc(n.Secrets, func(name string) bool { _, named := c.Secrets[name]; return !named })
	return !missing
}

// covers reports whether the rules of the call admit all requests of a need.
func (c *call) covers(h abi.HTTPNeed) bool {
	writes := slices.ContainsFunc(h.Methods, func(m string) bool { return m != "GET" && m != "HEAD" })
	policy, err := egress.Compile(c.rules)
	return err == nil && c.HTTP != nil && !(c.readonly && writes) && policy.Covers(egress.Rule{URL: h.URL, Methods: h.Methods})
}

// grants reports whether a tool may use the store in a mode.
func (s *Store) grants(mode abi.StoreMode, readonly bool) bool {
	return mode == "" || s != nil && (mode == abi.StoreRead || !s.ReadOnly && !readonly)
}
