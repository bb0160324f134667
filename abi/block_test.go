package abi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

func TestDecodeBlock(t *testing.T) {
	for doc, want := range map[string]abi.Block{
		`{"type":"text","text":"größer"}`:                                    {Type: "text", Text: "größer"},
		`{"type":"text","text":""}`:                                          {Type: "text"},
		`{"type":"text"}`:                                                    {Type: "text"},
		`{"type":"image","data":"AAEC","mimeType":"image/png"}`:              {Type: "image", Data: []byte{0, 1, 2}, MIMEType: "image/png"},
		`{"type":"audio","data":"AAEC","mimeType":"audio/wav"}`:              {Type: "audio", Data: []byte{0, 1, 2}, MIMEType: "audio/wav"},
		`{"type":"resource_link","uri":"https://a/","name":"a"}`:             {Type: "resource_link", URI: "https://a/", Name: "a"},
		`{"type":"resource_link","uri":"urn:u","name":"a","mimeType":"a/b"}`: {Type: "resource_link", URI: "urn:u", Name: "a", MIMEType: "a/b"},
	} {
		got, err := abi.DecodeBlock([]byte(doc))
		require.NoError(t, err, doc)
		require.Equal(t, want, got)
		again, err := json.Marshal(got)
		require.NoError(t, err)
		same, err := abi.DecodeBlock(again)
		require.NoError(t, err, "%s", again)
		require.Equal(t, got, same)
	}
}

func TestDecodeBlockRefuses(t *testing.T) {
	for doc, want := range map[string]string{
		``:                                      "expected JSON: it ends too early",
		`[]`:                                    "expected an object, found an array",
		`{}`:                                    `the field "type" is missing`,
		`{"type":"video"}`:                      `unknown type "video", expected text, image, audio, resource or resource_link`,
		`{"type":"text","txt":"a"}`:             `/txt: unknown field, did you mean "text"?`,
		`{"type":"text","text":"a","text":"b"}`: "/text: the field is given twice",
		`{"type":"text","text":1}`:              "/text: expected a string, found a number",
		`{"type":"text","text":"a","uri":"b"}`:  "a block of type text has no uri",
		`{"type":"image","mimeType":"a/b"}`:     "a block of type image needs data",
		`{"type":"image","data":"","mimeType":"a/b"}`:              "a block of type image needs data",
		`{"type":"image","data":"AA=","mimeType":"a/b"}`:           "/data: expected base64 in a string, found a string",
		`{"type":"image","data":[0,1],"mimeType":"a/b"}`:           "/data: expected base64 in a string, found an array",
		`{"type":"image","data":"AAEC"}`:                           "a block of type image needs mimeType",
		`{"type":"audio","data":"AAEC"}`:                           "a block of type audio needs mimeType",
		`{"type":"resource_link","uri":"u"}`:                       "a block of type resource_link needs name",
		`{"type":"resource_link","name":"n"}`:                      "a block of type resource_link needs uri",
		`{"type":"resource_link","uri":"u","name":"n","text":"t"}`: "a block of type resource_link has no text",
	} {
		_, err := abi.DecodeBlock([]byte(doc))
		require.EqualError(t, err, "invalid content block: "+want, doc)
	}
}

// TestMediaTypes holds the grammar of RFC 6838 with the parameters of RFC 9110. What
// links may lead to is in the vectors.
func TestMediaTypes(t *testing.T) {
	for media, want := range map[string]bool{
		"text/plain": true, "Text/PLAIN": true, "application/vnd.api+json": true, "a/b.c-d_e^f!g#h$i&j": true, "1/2": true,
		"text/plain;charset=utf-8": true, `text/plain ; charset="utf-8; \"x\"" ; a=b`: true, `a/b;c=""`: true,
		strings.Repeat("a", 127) + "/" + strings.Repeat("b", 127): true,

		"text": false, "text/": false, "/plain": false, "text/plain/x": false, "te xt/plain": false, "text/plain, a/b": false, "-a/b": false, "*/*": false,
		"text/plain;": false, "text/plain;;a=b": false, "text/plain;a": false, "text/plain;a=": false, "text/plain;=b": false, `text/plain;a="b`: false,
		`text/plain;a="b"c`: false, "text/plain;a=b c": false, "text/plain\n": false, "text/plain;a=\"\r\n\"": false, "text/plain;a=\"\u00fc\"": false,
		strings.Repeat("a", 128) + "/b": false, "a/b;c=" + strings.Repeat("d", 250): false,
	} {
		_, err := abi.DecodeBlock(block(t, abi.Block{Type: "resource", URI: "urn:a", MIMEType: media}))
		require.Equal(t, want, err == nil, "%q: %v", media, err)
	}
}

func TestURIs(t *testing.T) {
	for uri, want := range map[string]bool{
		"https://example.com": true, "http://[::1]:80/a?b#c": true, "note+x.y-1:a": true, "test://embedded-resource": true, "urn:a:b": true, "https://a/%C3%BC?@:": true,

		"": false, "a": false, ":a": false, "1a:b": false, "https:": false, "https:a": false, "https://": false, "https:///a": false, "https://?a": false, "https://:80/": false,
		"https://u:p@a/": false, "a:%": false, "a:%0g": false, "a:\u00fc": false, "a:b c": false, "a:<b>": false, "a:b\x00": false, "a:" + strings.Repeat("b", 8<<10): false,
		"file:///a": false, "FILE:///a": false, "blob:a": false, "vbscript:a": false, "view-source:https://a/": false,
	} {
		_, err := abi.DecodeBlock(block(t, abi.Block{Type: "resource", URI: uri}))
		require.Equal(t, want, err == nil, "%q: %v", uri, err)
	}
}

// TestAddressWithUser: what refuses a password does not repeat it, for models read it.
func TestAddressWithUser(t *testing.T) {
	for uri, want := range map[string]string{
		"https://u:secret@a/":       "uri: a web address may not have a user or password: remove what is before the @",
		"HTTP://u@a?b":              "uri: a web address may not have a user or password: remove what is before the @",
		"https://a b/":              `uri: expected a URI such as https://example.com/a%20b, found "https://a b/"`,
		"https:///a?someone@a.test": `uri: expected a URI such as https://example.com/a%20b, found "https:///a?someone@a.test"`,
	} {
		_, err := abi.DecodeBlock(block(t, abi.Block{Type: "resource_link", URI: uri, Name: "n"}))
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a.csv": true, "größe 👩\u200d🔬": true, strings.Repeat("a", 1024): true,
		strings.Repeat("a", 1025): false, "a\nb": false, "\x1b[31m": false, "a\u0085": false, "\u202egpj.exe": false, "a\u2028b": false,
	} {
		_, err := abi.DecodeBlock(block(t, abi.Block{Type: "resource_link", URI: "https://a/", Name: name}))
		require.Equal(t, want, err == nil, "%q: %v", name, err)
	}
}

func block(t *testing.T, b abi.Block) []byte {
	t.Helper()
	data, err := json.Marshal(b)
	require.NoError(t, err)
	return data
}

func FuzzDecodeBlock(f *testing.F) {
	f.Add(`{"type":"resource_link","uri":"https://a/","name":"n","mimeType":"a/b; c=\"d\""}`)
	f.Add(`{"type":"image","data":"AAAA","mimeType":"image/png"}`)
	f.Fuzz(func(t *testing.T, doc string) {
		b, err := abi.DecodeBlock([]byte(doc))
		if err != nil {
			return
		}
		require.NotContains(t, b.MIMEType+b.URI+b.Name, "\n")
		again, err := abi.DecodeBlock(block(t, b))
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}
