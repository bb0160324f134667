package egress

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompileRefuses(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{Rule{}, `http[0].url: want https://HOST/PATH`},
		{Rule{URL: "https://api.example.com"}, `http[0].url: "https://api.example.com" has no path: end it with "/*" for every path`},
		{Rule{URL: "https://api.example.com/?a=b"}, `http[0].url: "https://api.example.com/?a=b" has a query or a fragment: rules have none`},
		{Rule{URL: "https://u:p@api.example.com/*"}, `http[0].url: a user or password in the URL: the operator configures secrets`},
		{Rule{URL: "https://api.*.com/*"}, `http[0].url: invalid host "api.*.com"`},
		{Rule{URL: "https://**.example.com/*"}, `http[0].url: invalid host "**.example.com"`},
		{Rule{URL: "https://*.0.0.1/*"}, `http[0].url: host "0.0.1" is neither a name nor an IPv4 address of four decimal numbers`},
		{Rule{URL: "https://*.10.0.0.1/*"}, `http[0].url: host "*.10.0.0.1": an address has no wildcard`},
		{Rule{URL: "https://*.com/*"}, `http[0].url: host "*.com": anyone can have a name below com: name a domain, such as "*.example.com"`},
		{Rule{URL: "https://*.CO.uk./*"}, `http[0].url: host "*.CO.uk.": anyone can have a name below co.uk: name a domain, such as "*.example.co.uk"`},
		{Rule{URL: "https://*.github.io/*"}, `http[0].url: host "*.github.io": anyone can have a name below github.io: name a domain, such as "*.example.github.io"`},
		{Rule{URL: "https://api.example.com/**/x"}, `http[0].url: "https://api.example.com/**/x" has "**": a final "/*" stands for everything below`},
		{Rule{URL: "https://api.example.com/a/..%2f*"}, `http[0].url: a dot segment in the path`},
		{Rule{URL: "https://10.0.0.1/*"}, `http[0].url: 10.0.0.1 is a private address: only a rule with private: true admits it`},
		{Rule{URL: "https://[::1]/*"}, `http[0].url: ::1 is a loopback address: only a rule with private: true admits it`},
		{Rule{URL: "http://0.0.0.0/*", Private: true}, `http[0].url: 0.0.0.0 is an unspecified address: no rule admits it`},
		{Rule{URL: "https://*/*", Private: true}, `http[0].private: a rule for every host cannot be private: name the host, for example "*.corp.example"`},
		{Rule{URL: "https://api.example.com/*", Methods: []string{"get"}}, `http[0].methods: invalid method "get": want upper-case letters, such as GET`},
		{Rule{URL: "https://api.example.com/*", Methods: []string{"CONNECT"}}, `http[0].methods: CONNECT: no plugin can use this method`},
		{Rule{URL: "https://api.example.com/*", Methods: []string{"TRACE"}}, `http[0].methods: TRACE: no plugin can use this method`},
		{Rule{URL: "https://api.example.com/*", MaxBody: -1}, `http[0].max_body: -1: want 0 to 268435456 bytes`},
	} {
		_, err := Compile([]Rule{c.rule})
		require.EqualError(t, err, c.want)
	}
}

// TestSecretHosts: a secret goes to names that one owner has.
func TestSecretHosts(t *testing.T) {
	for host, want := range map[string]string{
		"api.example.com": "", "*.example.com": "", "*.example.co.uk": "", "*.internal": "", "10.0.0.1": "",
		"*": "a secret needs named hosts", "*.com": "anyone can have a name below com", "*.co.uk": "anyone can have a name below co.uk", "*.github.io": "anyone can have a name below github.io",
	} {
		if err := CheckHosts([]string{host}); want == "" {
			require.NoError(t, err, host)
		} else {
			require.ErrorContains(t, err, want, host)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, url string
		want         bool
	}{
		{"https://api.example.com/*", "https://api.example.com/", true},
		{"https://api.example.com/*", "https://api.example.com", true},
		{"https://api.example.com/*", "https://API.example.com./a/b?c", true},
		{"https://api.example.com/*", "https://api.example.com:8443/", false},
		{"https://api.example.com/*", "http://api.example.com/", false},
		{"https://api.example.com/*", "https://api.example.com:80/", false},
		{"https://api.example.com/*", "https://example.com/", false},
		{"https://api.example.com/*", "https://xapi.example.com/", false},
		{"https://api.example.com/*", "https://api.example.com.evil.test/", false},
		{"https://API.example.com.:443/*", "https://api.example.com/", true},
		{"https://api.example.com:8443/*", "https://api.example.com/", false},

		{"https://*.example.com/*", "https://api.example.com/", true},
		{"https://*.example.com/*", "https://a.b.example.com/", false},
		{"https://*.example.com/*", "https://example.com/", false},
		{"https://*.example.com/*", "https://evilexample.com/", false},
		{"https://*/*", "https://a.b.example.com/", true},
		{"https://*/*", "https://localhost/", false},
		{"https://*/*", "https://8.8.8.8/", false},
		{"https://*/*", "https://[2606:4700::1111]/", false},
		{"https://8.8.8.8/*", "https://8.8.8.8/", true},
		{"https://[2606:4700:0::1111]/*", "https://[2606:4700::1111]/", true},
		{"https://bücher.example/*", "https://xn--bcher-kva.example/", true},

		{"https://h.example.com/v1/*", "https://h.example.com/v1/a", true},
		{"https://h.example.com/v1/*", "https://h.example.com/v1/a/b/", true},
		{"https://h.example.com/v1/*", "https://h.example.com/v1/", true},
		{"https://h.example.com/v1/*", "https://h.example.com/v1", false},
		{"https://h.example.com/v1/*", "https://h.example.com/v10/a", false},
		{"https://h.example.com/v1/*", "https://h.example.com/V1/a", false},
		{"https://h.example.com/v1/*", "https://h.example.com//v1/a", false},
		{"https://h.example.com/v1/*", "https://h.example.com/v1%2Fa", false},
		{"https://h.example.com/v1/*", "https://h.example.com/v1/a%2Fb", true},
		{"https://h.example.com/%76%31/*", "https://h.example.com/v1/a", true},
		{"https://h.example.com/exact", "https://h.example.com/exact", true},
		{"https://h.example.com/exact", "https://h.example.com/exact/", false},
		{"https://h.example.com/exact", "https://h.example.com/exact/a", false},
		{"https://h.example.com/", "https://h.example.com/a", false},

		{"https://h.example.com/repos/*/issues", "https://h.example.com/repos/a/issues", true},
		{"https://h.example.com/repos/*/issues", "https://h.example.com/repos/a/b/issues", false},
		{"https://h.example.com/repos/*/issues", "https://h.example.com/repos//issues", false},
		{"https://h.example.com/repos/*/issues", "https://h.example.com/repos/a%2Fb/issues", false},
		{"https://h.example.com/repos/*/issues", "https://h.example.com/repos/a%252Fb/issues", false},
		{"https://h.example.com/repos/*/issues", "https://h.example.com/repos/a%5Cb/issues", false},
		{"https://h.example.com/projects/a%2fb/*", "https://h.example.com/projects/a%2Fb/x", true},
		{"https://h.example.com/f-*.json", "https://h.example.com/f-1.json", true},
		{"https://h.example.com/f-*.json", "https://h.example.com/f-1.jsonx", false},
		{"https://h.example.com/[a]*.json", "https://h.example.com/[a]1.json", true},
		{"https://h.example.com/[a]*.json", "https://h.example.com/a1.json", false},
		{"https://h.example.com/*a*b*c", "https://h.example.com/aabbcbc", true},
		{"https://h.example.com/*/x/*", "https://h.example.com/a/x/b/c", true},
		{"https://h.example.com/*/x/*", "https://h.example.com/a/y/b/c", false},
	} {
		p := policy(t, Rule{URL: c.pattern})
		target, err := parseTarget(c.url)
		require.NoError(t, err)
		got, _ := p.find(&target, "GET")
		require.Equal(t, c.want, got != nil, "%s admits %s", c.pattern, c.url)
	}
}

func TestFind(t *testing.T) {
	p := policy(t,
		Rule{URL: "https://*/*"},
		Rule{URL: "https://api.example.com/*", Methods: []string{"POST"}, Secret: "write"},
		Rule{URL: "https://api.example.com/v1/*", Secret: "one"},
		Rule{URL: "https://api.example.com/v1/x", Secret: "exact"},
		Rule{URL: "https://*.example.com/*", Methods: []string{"*"}, Secret: "all"},
	)
	for _, c := range []struct{ method, url, secret string }{
		{"GET", "https://api.example.com/v1/a", "one"},
		{"HEAD", "https://api.example.com/v1/x", "exact"},
		{"POST", "https://api.example.com/v1/a", "write"},
		{"GET", "https://api.example.com/v2", "all"},
		{"DELETE", "https://api.example.com/v1/a", "all"},
		{"GET", "https://other.test/", ""},
	} {
		target, err := parseTarget(c.url)
		require.NoError(t, err)
		r, _ := p.find(&target, c.method)
		require.NotNil(t, r)
		require.Equal(t, c.secret, r.Secret, "%s %s", c.method, c.url)
	}

	target, err := parseTarget("https://other.test/")
	require.NoError(t, err)
	r, reason := p.find(&target, "POST")
	require.Nil(t, r)
	require.Equal(t, ReasonMethod, reason)
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		granted []Rule
		need    Rule
		want    bool
	}{
		{nil, Rule{URL: "https://a.test/*"}, false},
		{[]Rule{{URL: "https://a.test/*"}}, Rule{URL: "https://a.test/*"}, true},
		{[]Rule{{URL: "https://a.test/*"}}, Rule{URL: "https://A.test/v1/*"}, true},
		{[]Rule{{URL: "https://a.test/*"}}, Rule{URL: "https://a.test/x"}, true},
		{[]Rule{{URL: "https://a.test/v1/*"}}, Rule{URL: "https://a.test/*"}, false},
		{[]Rule{{URL: "https://a.test/v1/*"}}, Rule{URL: "https://a.test/v1"}, false},
		{[]Rule{{URL: "https://a.test/v1/x"}}, Rule{URL: "https://a.test/v1/*"}, false},
		{[]Rule{{URL: "https://a.test/*"}}, Rule{URL: "http://a.test/*"}, false},
		{[]Rule{{URL: "https://a.test/*"}}, Rule{URL: "https://a.test:8443/*"}, false},
		{[]Rule{{URL: "https://a.test/*"}}, Rule{URL: "https://a.test/*", Methods: []string{"POST"}}, false},
		{[]Rule{{URL: "https://a.test/*", Methods: []string{"GET"}}}, Rule{URL: "https://a.test/*"}, true},
		{[]Rule{{URL: "https://a.test/*"}, {URL: "https://a.test/x/*", Methods: []string{"POST"}}}, Rule{URL: "https://a.test/x/*", Methods: []string{"GET", "POST"}}, true},
		{[]Rule{{URL: "https://a.test/*", Methods: []string{"*"}}}, Rule{URL: "https://a.test/*", Methods: []string{"POST", "DELETE"}}, true},
		{[]Rule{{URL: "https://a.test/*", Methods: []string{"GET", "POST"}}}, Rule{URL: "https://a.test/*", Methods: []string{"*"}}, false},
		{[]Rule{{URL: "https://*.a.test/*"}}, Rule{URL: "https://x.a.test/*"}, true},
		{[]Rule{{URL: "https://*.a.test/*"}}, Rule{URL: "https://*.a.test/v1/*"}, true},
		{[]Rule{{URL: "https://*/*"}}, Rule{URL: "https://*.a.test/*"}, true},
		{[]Rule{{URL: "https://*.a.test/docs/*"}}, Rule{URL: "https://*/*"}, true},
		{[]Rule{{URL: "https://10.0.0.1:8443/x", Private: true}}, Rule{URL: "https://*/*"}, true},
		{[]Rule{{URL: "https://*.a.test/*"}}, Rule{URL: "http://*/*"}, false},
		{[]Rule{{URL: "https://*.a.test/*"}}, Rule{URL: "https://*/*", Methods: []string{"GET", "POST"}}, false},
		{nil, Rule{URL: "https://*/*"}, false},
		{[]Rule{{URL: "https://*/*"}}, Rule{URL: "https://localhost/*"}, false},
		{[]Rule{{URL: "https://*/*"}}, Rule{URL: "https://8.8.8.8/*"}, false},
		{[]Rule{{URL: "https://10.0.0.1/*", Private: true}}, Rule{URL: "https://10.0.0.1/*"}, true},
		{[]Rule{{URL: "https://a.test/r/*/i"}}, Rule{URL: "https://a.test/r/x/i"}, true},
		{[]Rule{{URL: "https://a.test/r/*/i"}}, Rule{URL: "https://a.test/r/*/i"}, true},
		{[]Rule{{URL: "https://a.test/r/*/i"}}, Rule{URL: "https://a.test/r/*"}, false},
		{[]Rule{{URL: "https://a.test/r/*"}}, Rule{URL: "https://a.test/r/*/i"}, true},
		{[]Rule{{URL: "https://a.test/r/x*/i"}}, Rule{URL: "https://a.test/r/*/i"}, false},
		{[]Rule{{URL: "https://a.test/r/x*/i"}}, Rule{URL: "https://a.test/r/xy*/i"}, true},
		{[]Rule{{URL: "https://a.test/r/*/*"}}, Rule{URL: "https://a.test/r/*"}, false},
		{[]Rule{{URL: "https://a.test/r/*/"}}, Rule{URL: "https://a.test/r/*"}, false},
		{[]Rule{{URL: "https://*.a.test/*"}}, Rule{URL: "https://*.b.a.test/*"}, false},
		{[]Rule{{URL: "https://a.test/*"}}, Rule{URL: "nonsense"}, false},
	} {
		require.Equal(t, c.want, policy(t, c.granted...).Covers(c.need), "%v covers %v", c.granted, c.need)
	}
}
