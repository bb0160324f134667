package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
)

// check reports values that contradict others.
func (c *loaded) check() {
	runs, most := c.server.Runs, cmp.Or(c.server.MaxLimits.Background, background.DefaultMaxTimeout)
	after := runs.ParkAfter
	if runs.Park != server.ParkNever && after > 0 && after+server.ParkedTime > most && !c.problems.has("max_limits.background") {
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

// issuer is the issuer of access tokens; nil if none is configured.
func (c *config) issuer() *identity.OAuth {
	if o := c.oauth; o.Issuer == "" && o.Audience == "" && o.JWKS == "" && len(o.Scopes) == 0 {
		return nil
	}
	return &c.oauth
}

// checkUse reports settings that are valid on their own but cannot work here:
// missing or unsafe folders, contradictory limits, an open address, an untrusted
// file.
func (c *loaded) checkUse() {
	c.checkListen()
	c.checkLimits()
	for _, f := range c.ignored {
		c.problems = append(c.problems, problem{text: f.String()})
	}

	for i, dir := range c.plugins {
		c.checkSafe(fmt.Sprintf("plugins.%d", i), dir)
	}
	for name, g := range c.server.Grants {
		for i, m := range g.Files {
			c.checkFolder(fmt.Sprintf("grants.%s.files.%d.dir", name, i), m.Dir)
		}
	}
	if _, err := os.Stat(c.data); !errors.Is(err, fs.ErrNotExist) { // it would be made
		c.checkSafe("data", c.data)
	}
}

func (c *loaded) checkFolder(key, dir string) {
	if info, err := os.Stat(dir); err != nil {
		c.problem(key, "%v", err)
	} else if !info.IsDir() {
		c.problem(key, "%s is not a folder", dir)
	}
}

// checkSafe reports a folder that others can write to.
func (c *loaded) checkSafe(key, dir string) {
	c.checkFolder(key, dir)
	if err := owned.Behind(dir); errors.Is(err, owned.ErrUnsafe) {
		c.problem(key, "%v", err)
	}
}

// checkLimits reports limits that another limit keeps from ever being reached.
func (c *loaded) checkLimits() {
	l, most := c.server.Limits, c.server.MaxLimits
	for _, pair := range []struct {
		name        string
		limit, most int64
	}{
		{"fuel", l.Fuel, cmp.Or(most.Fuel, server.DefaultMaxFuel)},
		{"memory", l.Memory, cmp.Or(most.Memory, server.DefaultMaxMemory)},
		{"output", l.Output, cmp.Or(most.Output, server.DefaultMaxOutput)},
		{"timeout", int64(l.Timeout), int64(cmp.Or(most.Timeout, background.DefaultMaxTimeout))},
		{"background", int64(l.Background), int64(cmp.Or(most.Background, background.DefaultMaxTimeout))},
	} {
		if pair.limit > pair.most && !c.problems.has("max_limits."+pair.name) {
			c.problem("limits."+pair.name, "more than max_limits.%s allows: lower it, or raise that", pair.name)
		}
	}

	if r := c.server.Runs; r.PerSession > cmp.Or(r.PerHost, background.DefaultPerHost) && !c.problems.has("background.per_host") {
		c.problem("background.per_session", "more than background.per_host allows for all sessions together: lower it, or raise that")
	}
}

// minToken is the smallest length of a token, in bytes, if other machines can try
// to guess it.
const minToken = 16

// checkListen reports an address that other machines could reach without a good
// token.
func (c *loaded) checkListen() {
	const key = "serve.listen"
	if c.listen == "" {
		return
	}
	if _, _, err := net.SplitHostPort(c.listen); err != nil {
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
