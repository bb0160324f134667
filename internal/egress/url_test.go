package egress

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTarget(t *testing.T) {
	for raw, want := range map[string]string{
		// Scheme, host and port.
		"https://api.example.com":                    "https://api.example.com/",
		"HTTPS://API.Example.COM:443/":               "https://api.example.com/",
		"http://api.example.com:80/":                 "http://api.example.com/",
		"https://api.example.com:8443/":              "https://api.example.com:8443/",
		"https://api.example.com./":                  "https://api.example.com/",
		"https://bücher.example/":                    "https://xn--bcher-kva.example/",
		"https://BÜCHER。example/":                    "https://xn--bcher-kva.example/",
		"https://ｅｘａｍｐｌｅ.com/":                       "https://example.com/",
		"https://exa\u00admple.com/":                 "https://example.com/",
		"https://my_bucket.example.com/":             "https://my_bucket.example.com/",
		"https://1.2.3.4/":                           "https://1.2.3.4/",
		"https://[2606:4700:0:0::1111]/":             "https://[2606:4700::1111]/",
		"https://[2606:4700::1111]:8443/":            "https://[2606:4700::1111]:8443/",
		"https://1.2.3.4.example.com/":               "https://1.2.3.4.example.com/",
		"https://h.example.com/#fragment?x=1/../../": "https://h.example.com/",

		// Paths.
		"https://h.example.com/%61%7e%2d":       "https://h.example.com/a~-",
		"https://h.example.com/a%2fb":           "https://h.example.com/a%2Fb",
		"https://h.example.com/a//b":            "https://h.example.com/a//b",
		"https://h.example.com/A/b":             "https://h.example.com/A/b",
		"https://h.example.com/ü x\"<>":         "https://h.example.com/%C3%BC%20x%22%3C%3E",
		"https://h.example.com/a;v=1/b":         "https://h.example.com/a;v=1/b",
		"https://h.example.com/%e9":             "https://h.example.com/%E9",
		"https://h.example.com/a?q=../..&b=%2e": "https://h.example.com/a?q=../..&b=%2e",
		"https://h.example.com?x HTTP/1.1":      "https://h.example.com/?x%20HTTP/1.1",
		"https://h.example.com/?":               "https://h.example.com/",
	} {
		got, err := parseTarget(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, got.String(), raw)

		_, err = got.url(got.query)
		require.NoError(t, err, raw)
	}

	for raw, want := range map[string]string{
		"":                                  "want https://HOST/PATH",
		"api.example.com":                   "want https://HOST/PATH",
		"//api.example.com/":                "want https://HOST/PATH",
		"https:api.example.com":             "want https://HOST/PATH",
		"https:/api.example.com":            "want https://HOST/PATH",
		"ftp://api.example.com/":            "want https://HOST/PATH",
		"file:///etc/passwd":                "want https://HOST/PATH",
		"gopher://127.0.0.1:25/":            "want https://HOST/PATH",
		"https:///path":                     `invalid host ""`,
		"https://?x":                        `invalid host ""`,
		" https://h.example.com/":           "a space before or after the URL",
		"https://h.example.com/\r\nX: y":    "a control character in the URL",
		"https://h.example.com/\x00":        "a control character in the URL",
		"https://h.exa\tmple.com/":          "a control character in the URL",
		"https://h.example.com/\xff":        "not UTF-8",
		"https://h.example.com/\u0085":      "a control character in the URL",
		"https://u:p@h.example.com/":        "a user or password in the URL: the operator configures secrets",
		"https://@h.example.com/":           "a user or password in the URL: the operator configures secrets",
		"https://h.example.com@evil.test/":  "a user or password in the URL: the operator configures secrets",
		`https://evil.test\@h.example.com/`: "a backslash in the URL",
		`https://evil.test\.example.com/`:   "a backslash in the URL",
		`https://h.example.com/a\..\b`:      `a backslash in the path: write / or %5C`,
		"https://h.example.com:/":           `invalid port ""`,
		"https://h.example.com:0/":          `invalid port "0"`,
		"https://h.example.com:0443/":       `invalid port "0443"`,
		"https://h.example.com:65536/":      `invalid port "65536"`,
		"https://h.example.com:+443/":       `invalid port "+443"`,
		"https://h.example.com:443:80/":     `invalid host "h.example.com:443"`,
		"https://h example.com/":            `invalid host "h example.com"`,
		"https://h%2eexample.com/":          `invalid host "h%2eexample.com"`,
		"https://-h.example.com/":           `invalid host "-h.example.com"`,
		"https://h..example.com/":           `invalid host "h..example.com"`,
		"https://h.example.com../":          `invalid host "h.example.com.."`,
		"https://*.example.com/":            `invalid host "*.example.com"`,
		"https://h.example.com,evil.test/":  `invalid host "h.example.com,evil.test"`,

		// Addresses in other forms than the one that everybody reads alike.
		"https://127.1/":               `host "127.1" is neither a name nor an IPv4 address of four decimal numbers`,
		"https://2130706433/":          `host "2130706433" is neither a name nor an IPv4 address of four decimal numbers`,
		"https://017700000001/":        `host "017700000001" is neither a name nor an IPv4 address of four decimal numbers`,
		"https://0x7f000001/":          `host "0x7f000001" is neither a name nor an IPv4 address of four decimal numbers`,
		"https://0x7f.1/":              `host "0x7f.1" is neither a name nor an IPv4 address of four decimal numbers`,
		"https://0X7F.0.0.0x1/":        `host "0x7f.0.0.0x1" is neither a name nor an IPv4 address of four decimal numbers`,
		"https://127.0.0.01/":          `host "127.0.0.01" is neither a name nor an IPv4 address of four decimal numbers`,
		"https://0177.0.0.1/":          `host "0177.0.0.1" is neither a name nor an IPv4 address of four decimal numbers`,
		"https://127.0.0.1.256/":       `host "127.0.0.1.256" is neither a name nor an IPv4 address of four decimal numbers`,
		"https://256.256.256.256/":     `host "256.256.256.256" is neither a name nor an IPv4 address of four decimal numbers`,
		"https://１２７.１/":               `host "127.1" is neither a name nor an IPv4 address of four decimal numbers`,
		"https://[::ffff:127.0.0.1]/":  `address "[::ffff:127.0.0.1]": write it as 127.0.0.1`,
		"https://[::ffff:7f00:1]/":     `address "[::ffff:7f00:1]": write it as 127.0.0.1`,
		"https://[fe80::1%25eth0]/":    `address "[fe80::1%25eth0]" has a zone`,
		"https://[fe80::1%eth0]/":      `address "[fe80::1%eth0]" has a zone`,
		"https://[127.0.0.1]/":         `invalid address "[127.0.0.1]"`,
		"https://[::1/":                `invalid address "[:"`,
		"https://[::1]x/":              `invalid address "[::1]x"`,
		"https://::1/":                 `invalid host ":"`,
		"https://[v1.x]/":              `invalid address "[v1.x]"`,
		"https://h.example.com/%zz":    `invalid escape "%zz" in the path`,
		"https://h.example.com/%2":     `invalid escape "%2" in the path`,
		"https://h.example.com/%u002e": `invalid escape "%u0" in the path`,

		// Paths that servers read in different ways.
		"https://h.example.com/a/./b":                          "a dot segment in the path",
		"https://h.example.com/a/..":                           "a dot segment in the path",
		"https://h.example.com/../../etc":                      "a dot segment in the path",
		"https://h.example.com/a/%2e%2E/b":                     "a dot segment in the path",
		"https://h.example.com/a/.%2e/b":                       "a dot segment in the path",
		"https://h.example.com/a/..%2fb":                       "a dot segment in the path",
		"https://h.example.com/a/..%5cb":                       "a dot segment in the path",
		"https://h.example.com/a/%252e%252e/b":                 "a dot segment in the path",
		"https://h.example.com/a/..%252fb":                     "a dot segment in the path",
		"https://h.example.com/a/%25252e./b":                   "a dot segment in the path",
		"https://h.example.com/a/..;/b":                        "a dot segment in the path",
		"https://h.example.com/a/..;x=%2f/b":                   "a dot segment in the path",
		"https://h.example.com/a/..%20/b":                      "a dot segment in the path",
		"https://h.example.com/a%00.png":                       "an encoded control character in the path",
		"https://h.example.com/a%0d%0ab":                       "an encoded control character in the path",
		"https://h.example.com/a%250ab":                        "an encoded control character in the path",
		"https://h.example.com/%c0%ae%c0%ae/":                  "an overlong encoding in the path",
		"https://h.example.com/%e0%80%ae/":                     "an overlong encoding in the path",
		"https://h.example.com/..%e0%81%9cadmin":               "an overlong encoding in the path",
		"https://h.example.com/..%25e0%2581%259cadmin":         "an overlong encoding in the path",
		"https://h.example.com/%f0%81%80%80":                   "an overlong encoding in the path",
		"https://h.example.com/%2525252525252f/":               "the path is encoded too many times",
		"https://h.example.com/" + strings.Repeat("a", MaxURL): "longer than 8192 bytes",
	} {
		_, err := parseTarget(raw)
		require.Error(t, err, raw)
		if want != "" {
			require.EqualError(t, err, want, raw)
		}
	}
}

// FuzzTarget checks that what is normalized stays as it is, is sent as it is, and has
// no dot segment left at any layer of encoding.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"https://h.example.com/a/%2e%2e/b?c=d", "https://[::1]:8443/", "http://bücher.example/%25%32%66", "https://0x7f.1/", "https://h/;/..;/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := parseTarget(raw)
		if err != nil {
			return
		}

		again, err := parseTarget(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)

		u, err := got.url(got.query)
		require.NoError(t, err)
		require.Equal(t, got.hostPort(), u.Host)
		require.NotContains(t, u.RequestURI(), " ")

		path := got.path
		for range 4 {
			for segment := range strings.SplitSeq(strings.ReplaceAll(path, `\`, "/"), "/") {
				require.NotEqual(t, "..", segment)
				require.NotEqual(t, ".", segment)
			}
			path = decodeOnce(path)
		}
	})
}
