package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	slashpath "path"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/registry"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/vault"
)

// configCheck checks a configuration, and adds the problems that it finds.
type configCheck struct{ *loadedConfig }

// check reports values that contradict each other.
func (c configCheck) check() {
	c.checkEngine()
	for rule := range c.server.Approvals.Tools {
		c.checkRule("approvals.tools", rule)
	}
	for rule := range c.server.Listing {
		c.checkRule("listing", rule)
	}
	most := cmp.Or(c.server.MaxLimits.Background, background.DefaultMaxTimeout)
	after := c.server.ParkAfter
	if c.server.Park != server.ParkNever && after > 0 && after+server.ParkedTime > most && !c.problems.has("max_limits.background") {
		c.problem("background.park_after", "a call that is parked after %v may take %v, and max_limits.background is %v: raise it, park sooner, or set background.park to never",
			after, after+server.ParkedTime, most)
	}

	if o := c.issuer(); o != nil && o.Check() != nil {
		for line := range strings.SplitSeq(o.Check().Error(), "\n") {
			key, text, _ := strings.Cut(line, ": ")
			c.problem("oauth."+key, "%s", text)
		}
	}
}

// checkRule reports a key of a setting that is neither the name of a tool nor a pattern.
func (c configCheck) checkRule(setting, rule string) {
	if _, err := slashpath.Match(rule, ""); err != nil || rule == "" {
		c.problem(setting+"."+rule, "expected the name of a tool, or a pattern such as files_*")
	}
}

// issuer returns the issuer of access tokens, or nil if none is configured.
func (c *config) issuer() *identity.OAuth {
	if o := c.oauth; o.Issuer == "" && o.Audience == "" && o.JWKS == "" && len(o.Scopes) == 0 {
		return nil
	}
	return &c.oauth
}

// checkUse reports settings that are valid on their own but cannot work here: folders that
// are missing or unsafe, limits that contradict each other, an address open to others, a
// file that is not trusted.
func (c configCheck) checkUse() {
	c.checkListen()
	c.checkApprovals()
	c.checkLimits()
	for _, f := range c.ignored {
		c.problems = append(c.problems, problem{text: f.String()})
	}

	for i, source := range c.plugins {
		key := fmt.Sprintf("plugins.%d", i)
		ref, err := registry.ParseReference(source)
		if err != nil {
			c.checkFolder(key, source, true)
			continue
		}
		if _, err := c.store().Find(ref); err != nil {
			c.problem(key, "%v", err)
		}
	}
	for name, g := range c.server.Grants {
		for i, m := range g.Files {
			c.checkFolder(fmt.Sprintf("grants.%s.files.%d.dir", name, i), m.Dir, false)
		}
		for i, rule := range g.HTTP {
			if rule.Secret != "" && c.secrets[rule.Secret] == nil {
				c.problem(fmt.Sprintf("grants.%s.http.%d.secret", name, i), "there is no secret %q: add secrets.%s", rule.Secret, rule.Secret)
			}
		}
	}
	if err := c.checkKeys(); err != nil {
		c.problem("secrets_key", "%v", err)
	}
	c.checkSecrets()
	if _, err := os.Stat(c.data); !errors.Is(err, fs.ErrNotExist) && !owned.Foreign(c.data) { // it would be created; another user's server checks it
		c.checkFolder("data", c.data, true)
	}
}

// checkKeys returns a problem with the keys for users' secrets, if there are such keys.
func (c *config) checkKeys() error {
	for name, s := range c.secrets {
		if s.Scope == vault.OfUser && c.secretsKey == "" {
			return fmt.Errorf("the secret %q is of users, and needs a key: run toolhost secret key FILE, and name the file here", name)
		}
	}
	if c.secretsKey == "" {
		return nil
	}

	err := vault.Keys(c.secretsKey).Check()
	if errors.Is(err, vault.ErrNoKeys) { // not wrapped: agents read less about it
		err = fmt.Errorf("%v: run toolhost secret key %s", err, c.secretsKey)
	}
	return err
}

// checkSecrets reports files of secrets that are missing or unsafe, because they would
// make calls fail.
func (c configCheck) checkSecrets() {
	for name, s := range c.secrets {
		if s.File == "" {
			continue
		}
		err := vault.CheckFile(s.File)
		switch {
		case errors.Is(err, host.ErrNoSecret):
			err = &fs.PathError{Op: "open", Path: s.File, Err: syscall.ENOENT}
		case errors.Is(err, owned.ErrUnsafe) && owned.Foreign(c.data): // it may belong to the server's user
			err = nil
		}
		if err != nil {
			c.problem("secrets."+name+".file", "%v", err)
		}
	}
}

// checkFolder reports a folder that is missing, or that is unsafe although it must be
// safe.
func (c configCheck) checkFolder(key, dir string, safe bool) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", dir)
	}
	if err == nil && safe {
		if unsafe := owned.Behind(dir); errors.Is(unsafe, owned.ErrUnsafe) {
			err = unsafe
		}
	}
	if err != nil {
		c.problem(key, "%v", err)
	}
}

// checkLimits reports limits that can never be reached because another limit is lower.
func (c configCheck) checkLimits() {
	limits := map[string]string{"background.per_session": "background.per_host"}
	for _, name := range []string{"fuel", "memory", "output", "timeout", "background"} {
		limits["limits."+name] = "max_limits." + name
	}
	for limit, most := range limits {
		if _, set := c.values[limit]; !set || c.number(limit) <= c.number(most) || c.problems.has(most) {
			continue
		}
		switch _, bounded := c.values[most]; {
		case c.number(limit) < int64(server.NoLimit):
			c.problem(limit, "exceeds %s: lower one or raise the other", most)
		case bounded:
			c.problem(limit, "none exceeds %s: leave that out for no limit, or set this one", most)
		}
	}
}

// number returns the current value of a key that holds a number.
func (c configCheck) number(key string) int64 {
	s := c.table[slices.IndexFunc(c.table, func(s setting) bool { return s.key == key })]
	return cmp.Or(reflect.ValueOf(s.to).Elem().Int(), reflect.ValueOf(s.builtIn).Int())
}

// minToken is the minimum length of a token, in bytes, if other machines could try to
// guess it.
const minToken = 16

// checkApprovals reports a token for approvals that could be guessed.
func (c configCheck) checkApprovals() {
	if _, err := identity.NewApprovalToken(c.approvalToken); err != nil {
		c.problem("approvals.token", "%v: set TOOLHOST_APPROVALS_TOKEN to random characters, such as the output of openssl rand -hex 16", err)
	}
}

// checkListen reports an address that other machines could reach without a token, or with
// one that is easy to guess.
func (c configCheck) checkListen() {
	const key = "serve.listen"
	if c.listen == "" {
		return
	}
	_, port, err := net.SplitHostPort(c.listen)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		c.problem(key, "%s: expected host:port, such as 127.0.0.1:7070", c.listen)
		return
	}
	if identity.Loopback(c.listen) {
		return
	}

	if n := len(c.token); n > 0 && n < minToken {
		c.problem("token", "other machines could reach %s, and a token of %d characters can be guessed: set TOOLHOST_TOKEN to %d or more random characters, such as the output of openssl rand -hex 16",
			c.listen, n, minToken)
	}

	if c.token == "" && c.issuer() == nil {
		c.problem(key, "other machines could reach %s, and no token is configured: listen on 127.0.0.1 or localhost, set TOOLHOST_TOKEN to a long random token, or set oauth.issuer and oauth.audience",
			c.listen)
	}
}
