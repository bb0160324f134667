package abi_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

func TestKinds(t *testing.T) {
	for kind, want := range map[abi.Kind][2]bool{ // success, error
		abi.Success:            {true, false},
		abi.ToolError:          {false, true},
		abi.Internal:           {false, true},
		abi.ConnectionRequired: {false, false},
		abi.LimitReached:       {false, true},
		abi.CanceledKind:       {false, true},
	} {
		r := abi.Result{Kind: kind}
		require.Equal(t, want, [2]bool{r.IsSuccess(), r.IsError()}, kind)
	}
}

func TestDecodeBlock(t *testing.T) {
	for doc, want := range map[string]abi.Block{
		`{"type":"text","text":"größer"}`:                                {Type: "text", Text: "größer"},
		`{"type":"text","text":""}`:                                      {Type: "text"},
		`{"type":"text"}`:                                                {Type: "text"},
		`{"type":"image","data":"AAEC","mimeType":"image/png"}`:          {Type: "image", Data: []byte{0, 1, 2}, MIMEType: "image/png"},
		`{"type":"audio","data":"AAEC","mimeType":"audio/wav"}`:          {Type: "audio", Data: []byte{0, 1, 2}, MIMEType: "audio/wav"},
		`{"type":"resource_link","uri":"file:///a","name":"a"}`:          {Type: "resource_link", URI: "file:///a", Name: "a"},
		`{"type":"resource_link","uri":"u","name":"a","mimeType":"a/b"}`: {Type: "resource_link", URI: "u", Name: "a", MIMEType: "a/b"},
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
		require.EqualError(t, err, "not a content block: "+want, doc)
	}
}

func TestDecodeConnection(t *testing.T) {
	c, err := abi.DecodeConnection([]byte(`{"provider":"github","subject":"octocat","setup_url":"https://example.com"}`))
	require.NoError(t, err)
	require.Equal(t, &abi.Connection{Provider: "github", Subject: "octocat", SetupURL: "https://example.com"}, c)
	for doc, want := range map[string]string{
		`{}`:                         `the field "provider" is missing`,
		`{"provider":""}`:            "provider is empty",
		`{"provider":"x","token":1}`: "/token: unknown field, expected one of provider, subject, setup_url",
	} {
		_, err := abi.DecodeConnection([]byte(doc))
		require.EqualError(t, err, "not a connection: "+want)
	}
}
