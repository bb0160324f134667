package egress

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/hostile.txt")

const (
	theSecret   = "s3cr3t/v+lue<&>\"q\"=é" // changes in every encoding
	plainSecret = "sk-0123456789abcdef"
)

func public() []Rule { return []Rule{{URL: "https://*/*"}} }

// TestHostile plays every case against a server of each protocol. What a person sees
// is in testdata/hostile.txt.
func TestHostile(t *testing.T) {
	var got [2]string
	for i, http2 := range []bool{false, true} {
		h := newHostile(t, http2)
		for _, c := range hostileCases() {
			got[i] += c.name + "\n\t" + h.play(t, c) + "\n"
		}
	}
	require.Equal(t, got[0], got[1], "both protocols")
	require.NotContains(t, got[0], plainSecret)

	const golden = "testdata/hostile.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got[0]), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got[0])
}

// hostile is a network with servers to play cases against.
type hostile struct {
	*world
	client  *Client
	servers []*webServer
	names   *strings.Replacer
	ports   *strings.Replacer
}

func newHostile(t *testing.T, http2 bool) *hostile {
	h := &hostile{world: newWorld(t)}
	for name, addr := range map[string]string{
		"loopback": "127.0.0.2", "private": "10.0.0.1", "metadata": "169.254.169.254", "mapped": "::ffff:10.0.0.1", "nat64": "64:ff9b::7f00:1",
		"sixtofour": "2002:7f00:1::1", "teredo": "2001:0:7f00:1::1", "zero": "0.0.0.0", "multicast": "224.0.0.1",
	} {
		h.dns.set(name+".example.test", []string{addr})
	}

	serve := func(o serverOptions) *webServer {
		s := newServer(t, h.ca, o, hostileServer())
		h.servers = append(h.servers, s)
		return s
	}
	expired := h.ca.issue(t, time.Now().Add(-time.Minute), "api.example.test")
	wrong := h.ca.issue(t, time.Now().Add(time.Hour), "www.example.test")
	stranger := newAuthority(t).issue(t, time.Now().Add(time.Hour), "api.example.test")
	urls := map[string]string{
		"api":      serve(serverOptions{http2: http2}).url,
		"plain":    serve(serverOptions{plain: true}).url,
		"expired":  serve(serverOptions{http2: http2, cert: &expired}).url,
		"wrong":    serve(serverOptions{http2: http2, cert: &wrong}).url,
		"stranger": serve(serverOptions{http2: http2, cert: &stranger}).url,
		"raw":      rawServer(t, h.ca, "Bearer "+plainSecret+"\r\nis not HTTP\r\n\r\n"),
		"switch":   rawServer(t, h.ca, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
		"lengths":  rawServer(t, h.ca, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
		"closed":   closedPort(t),
	}
	urls["evil"] = strings.Replace(urls["api"], "api.example.test", "deep.evil.test", 1)
	urls["a.b"] = strings.Replace(urls["api"], "api.example.test", "a.b.example.test", 1)
	urls["mixed"] = strings.Replace(urls["plain"], "http:", "https:", 1)

	var names, ports []string
	for name, u := range urls {
		names = append(names, "{"+name+"}", u, "%7B"+name+"%7D", url.QueryEscape(u))
		port := u[strings.LastIndexByte(u, ':')+1:]
		ports = append(ports, ":"+port, ":PORT", "%3A"+port, "%3APORT")
	}
	h.names, h.ports = strings.NewReplacer(names...), strings.NewReplacer(ports...)
	h.client = h.world.client(t)
	return h
}

// play returns what a person sees of a case.
func (h *hostile) play(t *testing.T, c hostileCase) string {
	rules := c.rules
	if rules == nil {
		secret := ""
		if c.secret != (Place{}) {
			secret = "example"
		}
		rules = []Rule{
			{URL: "{api}/*", Methods: []string{"GET", "POST"}, Secret: secret, MaxBody: 1 << 20},
			{URL: "{evil}/*"},
			{URL: "https://*.example.test/*"},
		}
	}
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].URL = h.names.Replace(rules[i].URL)
	}
	value := plainSecret
	if c.value != "" {
		value = c.value
	}
	h.world.names = map[string]Secret{"example": {Value: value, Hosts: []string{"api.example.test"}, Place: c.secret}}

	var last Exchange
	call := h.client.Call(CallConfig{
		Plugin: c.name, Policy: policy(t, rules...), Readonly: c.readonly, Secrets: h,
		Observe: func(x Exchange) { last = x },
	})
	call.limits.requests = cmp.Or(c.limits.requests, call.limits.requests)
	call.limits.bytes = cmp.Or(c.limits.bytes, call.limits.bytes)
	call.limits.timeout = cmp.Or(c.limits.timeout, call.limits.timeout)
	if c.before != nil {
		before := *c.before
		before.URL = h.names.Replace(before.URL)
		_, err := call.Do(context.Background(), &before)
		require.NoError(t, err, c.name)
	}
	for _, s := range h.servers {
		s.last()
	}

	req := c.req
	req.URL = h.names.Replace(h.names.Replace(req.URL))
	resp, err := call.Do(context.Background(), &req)
	if c.unseen {
		for _, s := range h.servers {
			require.Nil(t, s.last(), c.name)
		}
	}
	require.NotContains(t, fmt.Sprintf("%+v %+v", last, err), value, c.name)
	return h.ports.Replace(describe(resp, err))
}

func describe(resp *Response, err error) string {
	if err != nil {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", err), "*egress.")
		return kind + ": " + err.Error()
	}

	s := strconv.Itoa(resp.Status)
	for _, name := range []string{"Location", "X-Echo", "X-After", "Set-Cookie", "Proxy-Authenticate", "Link", "Content-Encoding"} {
		if v := resp.Header.Get(name); v != "" {
			s += " " + name + "=" + v
		}
	}
	for name := range resp.Header {
		if strings.HasPrefix(strings.ToLower(name), "x-sk") {
			s += " " + name
		}
	}
	return strings.TrimSpace(s + " " + strings.TrimSpace(string(resp.Body)))
}
