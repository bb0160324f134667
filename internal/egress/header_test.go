package egress

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOverrides: a header that names another URL or method than the request needs a rule for
// that, and none names another path or host.
func TestOverrides(t *testing.T) {
	w := newWorld(t)
	s := newServer(t, w.ca, serverOptions{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	client, p := w.client(t), policy(t, Rule{URL: s.url + "/mine/*"})
	send := func(name, value string) error {
		_, err := do(t, client, CallConfig{Policy: p}, Request{URL: s.url + "/mine/x", Header: http.Header{name: {value}}})
		return err
	}

	for _, name := range []string{
		"X-Original-URL", "X-Original-URI", "X-Original-Path", "X-Rewrite-URL", "X-Override-Url", "X-Request-Uri", "x_request_uri",
		"X-Forwarded-Uri", "X-Forwarded-Url", "X-Forwarded-Path", "X-Forwarded-Prefix", "X-Envoy-Original-Path", "X-Waws-Unencoded-Url", "X-Url",
		"X-Forwarded-Host", "X-Original-Host", "x_host", "Forwarded",
	} {
		require.EqualError(t, send(name, "/mine/y"), "headers: "+name+": plugins cannot set it")
	}
	for _, name := range []string{"Destination", "X-Amz-Copy-Source", "x-ms-copy-source", "X-Goog-Copy-Source", "X-Ms-Rename-Source", "X-Copy-From"} {
		require.NoError(t, send(name, s.url+"/mine/y"), name)
		require.Equal(t, []string{s.url + "/mine/y"}, s.last().Header[http.CanonicalHeaderKey(name)])
		require.Error(t, send(name, s.url+"/admin"), name)
		require.Error(t, send(name, "https://evil.test/mine/y"), name)
		require.Error(t, send(name, "/mine/y"), "%s: of a bucket that is called mine", name)
	}
	for _, name := range []string{"X-HTTP-Method", "X-HTTP-Method-Override", "X-Method-Override", "X-Forwarded-Method", "X-Original-Method", "x_method"} {
		require.NoError(t, send(name, "get"), name)
		s.last()
		require.Error(t, send(name, "DELETE"), name)
	}
	require.Nil(t, s.last())

	// The rule is that of the request: a method of the header does not choose another one.
	p = policy(t, Rule{URL: s.url + "/mine/*"}, Rule{URL: s.url + "/*", Methods: []string{"GET", "DELETE"}})
	require.ErrorContains(t, send("X-HTTP-Method", "DELETE"), "but not GET and DELETE")
	p = policy(t, Rule{URL: s.url + "/mine/*"})

	for _, name := range []string{"X-Forwarded-For", "Referer", "Origin", "X-Amz-Copy-Source-If-Match", "X-Callback-URL", "X-Payment-Method", "X-Webhook-Host"} {
		require.NoError(t, send(name, "https://evil.test/"), name)
	}
}
