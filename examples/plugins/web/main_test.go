package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }

func TestREADME(t *testing.T) { readme.Check(t, &plugin) }

func call(t *testing.T, in fetchArgs, exchanges ...guesttest.Exchange) (p page, failure string) {
	t.Helper()
	out := guesttest.Host{HTTP: guesttest.Play(exchanges...)}.Call(&plugin, "fetch", in)
	if !out.IsSuccess() {
		return p, out.Error
	}
	require.NoError(t, json.Unmarshal(out.Value, &p))
	return p, ""
}

// TestFetch plays a page and a redirect to it that were recorded.
func TestFetch(t *testing.T) {
	h := guesttest.Host{HTTP: guesttest.Recorded(t, "testdata/tea.json")}
	out := h.Call(&plugin, "fetch", fetchArgs{URL: "https://example.com/tea", Links: true})
	require.True(t, out.IsSuccess(), out.Error)
	var p page
	require.NoError(t, json.Unmarshal(out.Value, &p))
	require.Equal(t, page{
		URL: "https://www.example.com/tea/", Title: "All about tea",
		Text:  "# Tea & water\n\nTea is made of leaves and hot water.\n\n- Green: 80 °C\n- Black: 95 °C\n\nmake tea\n  --hot",
		Links: []link{{"leaves", "https://www.example.com/leaves"}},
	}, p)
}

func TestFetchParts(t *testing.T) {
	text := guesttest.Exchange{URL: "https://example.com/", Header: http.Header{"Content-Type": {"text/plain; charset=iso-8859-1"}}, Bytes: []byte("0123456789\xe4" + strings.Repeat("x", 200))}
	p, failure := call(t, fetchArgs{URL: "https://example.com/", From: 10, Limit: 100}, text)
	require.Empty(t, failure)
	require.Equal(t, "ä"+strings.Repeat("x", 99), p.Text)
	require.Equal(t, 110, p.More)
	p, _ = call(t, fetchArgs{URL: "https://example.com/", From: 1000}, text)
	require.Empty(t, p.Text)
	require.Zero(t, p.More)
}

func TestFetchFails(t *testing.T) {
	for want, e := range map[string]guesttest.Exchange{
		"example.com answers 404 Not Found":                 {URL: "https://example.com/", Status: 404},
		"https://example.com/ is image/png, not text":       {URL: "https://example.com/", Header: http.Header{"Content-Type": {"image/png"}}},
		"no exchange is left for GET https://example.com/":  {URL: "https://example.com/other"},
		"GET http://example.com/ is refused: it is not amo": {URL: "https://example.com/", Status: 302, Header: http.Header{"Location": {"http://example.com/"}}},
	} {
		_, failure := call(t, fetchArgs{URL: "https://example.com/"}, e)
		require.Contains(t, failure, want)
	}
	_, failure := call(t, fetchArgs{URL: "example.com"})
	require.Contains(t, failure, "needs a scheme")
	require.Contains(t, guesttest.Host{}.Call(&plugin, "fetch", fetchArgs{URL: "https://example.com/"}).Error, "denied")
}

// TestHostilePages: a page costs no more than its bytes, and what is hidden or leads
// elsewhere does not come out.
func TestHostilePages(t *testing.T) {
	base, _ := url.Parse("https://example.com/a/")
	for name, c := range map[string]struct{ html, text, links string }{
		"scripts":        {`a<script>evil()</script><style>b{}</style><noscript>c</noscript>d`, "ad", ""},
		"unclosed":       {`a<p>b<b>c<a href="/x">d`, "a\n\nbcd", ""},
		"a comment":      {`a<!-- <script> -->b`, "ab", ""},
		"script, split":  {`<scr<script>ipt>alert(1)</script>b`, "ipt>alert(1)b", ""},
		"entities":       {`&lt;script&gt; &#0; &#xD800; &nosuch;`, "<script> \uFFFD \uFFFD &nosuch;", ""},
		"odd links":      {`<a href="javascript:x()">a</a><a href="data:text/html,x">b</a><a href="https://u:p@other.example/">c</a><a href="#d">d</a><a href="//x.example">e</a>`, "abcde", "c https://other.example/|e https://x.example"},
		"a base":         {`<base href="javascript:x"><a href="b">a</a>`, "a", "a https://example.com/a/b"},
		"links in links": {`<a href="/1">a<a href="/2">b</a></a>`, "ab", "a https://example.com/1|b https://example.com/2"},
		"not UTF-8":      {"a\xffb", "a\uFFFDb", ""},
		"svg":            {`<svg/>a<svg><text>b</text></svg>c`, "ac", ""},
		"deep":           {strings.Repeat("<div><pre>", 100_000) + "a", "a", ""},
		"ends of pre":    {strings.Repeat("</pre>", 10) + "a  b", "a b", ""},
		"a long tag":     {`a<b x="` + strings.Repeat("x", 2<<20) + `">b`, "a", ""},
		"null":           {"a\x00b", "a\x00b", ""},
	} {
		r := readPage(strings.NewReader(c.html), base)
		require.Equal(t, c.text, r.text(), name)
		var links []string
		for _, l := range r.links {
			links = append(links, l.Text+" "+l.URL)
		}
		require.Equal(t, c.links, strings.Join(links, "|"), name)
	}

	r := readPage(strings.NewReader(strings.Repeat(`<a href="/x">y</a>`, 10_000)+"<title>"+strings.Repeat("t", 10_000)), base)
	require.Len(t, r.links, maxLinks)
	require.Less(t, len(r.title), maxTitle+10)
}

func FuzzPage(f *testing.F) {
	base, _ := url.Parse("https://example.com/")
	f.Add(`<h1>a</h1><a href="b">c</a><pre> d`)
	f.Fuzz(func(t *testing.T, page string) {
		r := readPage(strings.NewReader(page), base)
		require.LessOrEqual(t, len(r.links), maxLinks)
		require.True(t, json.Valid([]byte(func() string { b, _ := json.Marshal(r.text()); return string(b) }())))
	})
}
