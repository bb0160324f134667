package abi_test

import (
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

func TestDecodeConnection(t *testing.T) {
	c, err := abi.DecodeConnection([]byte(`{"provider":"github","subject":"octocat","setup_url":"https://example.com"}`))
	require.NoError(t, err)
	require.Equal(t, &abi.Connection{Provider: "github", Subject: "octocat", SetupURL: "https://example.com"}, c)
	for doc, want := range map[string]string{
		`{}`:                         `the field "provider" is missing`,
		`{"provider":""}`:            "provider is empty",
		`{"provider":"x","token":1}`: "/token: unknown field, expected one of provider, subject, setup_url",
		`{"provider":"x","setup_url":"javascript:alert(1)"}`: `setup_url: expected a URL of http or https, found "javascript:alert(1)"`,
		`{"provider":"x","setup_url":"https://u:secret@a/"}`: "setup_url: a web address may not have a user or password: remove what is before the @",
		`{"provider":"x","setup_url":"urn:x"}`:               `setup_url: expected a URL of http or https, found "urn:x"`,
		`{"provider":"x\u001b[31m"}`:                         "expected a provider and a subject without control characters",
	} {
		_, err := abi.DecodeConnection([]byte(doc))
		require.EqualError(t, err, "not a connection: "+want)
	}
}
