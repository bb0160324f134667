package abi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

func asks(key, message, schema string) string {
	return fmt.Sprintf(`{"questions":{%q:{"message":%q,"schema":%s}}}`, key, message, schema)
}

func TestDecodeQuestions(t *testing.T) {
	q, err := abi.DecodeQuestions([]byte(asks("user.name-1_A", "Who?", ` {"type":"object"}`)))
	require.NoError(t, err)
	require.Equal(t, "Who?", q.Questions["user.name-1_A"].Message)

	const object = `{"type":"object"}`
	many := make([]string, abi.MaxQuestions+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"k%d":{"message":"m","schema":%s}`, i, object)
	}
	for request, problem := range map[string]string{
		`{}`:               `the field "questions" is missing`,
		`{"questions":{}}`: "found 0, expected 1 to 8",
		`{"questions":{` + strings.Join(many, ",") + `}}`:         "found 9, expected 1 to 8",
		asks("", "m", object):                                     `the key ""`,
		asks("a b", "m", object):                                  `the key "a b"`,
		asks(strings.Repeat("k", 65), "m", object):                "the key",
		asks("k", "", object):                                     "k: expected a message",
		asks("k", strings.Repeat("m", abi.MaxQuestion+1), object): "k: expected a message",
		asks("k", "m", `"object"`):                                "k: expected a schema of type object",
		asks("k", "m", `{"type":["object"]}`):                     "k: expected a schema of type object",
		asks("k", "m", `{"type":"object","x":"`+strings.Repeat("x", abi.MaxFormSchema)+`"}`): "k: the schema has",
		`x`: "",
	} {
		_, err := abi.DecodeQuestions([]byte(request))
		require.ErrorIs(t, err, abi.ErrQuestions, request)
		require.ErrorContains(t, err, problem)
	}
}

func FuzzDecodeQuestions(f *testing.F) {
	f.Add([]byte(asks("name", "Who?", `{"type":"object"}`)))
	f.Add([]byte(`{"questions":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		q, err := abi.DecodeQuestions(data)
		if err != nil {
			require.ErrorIs(t, err, abi.ErrQuestions)
			require.Empty(t, q)
			return
		}
		require.NotEmpty(t, q.Questions)
		require.LessOrEqual(t, len(q.Questions), abi.MaxQuestions)
	})
}
