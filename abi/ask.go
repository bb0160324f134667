package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Limits of [Questions].
const (
	MaxQuestions   = 8        // questions asked at once
	MaxQuestion    = 4 << 10  // bytes of one message
	MaxFormSchema  = 16 << 10 // bytes of one schema
	maxQuestionKey = 64       // bytes of a key
)

// Questions is the request of the capability "ask". It contains all the questions that a tool
// asks at once, each under a key that the tool chooses. A key has 1 to 64 letters, digits
// and . _ -. A tool must not ask for passwords or tokens: the answers pass through the client
// and its logs.
//
// A client may answer by repeating the call. The tool then runs again from its
// beginning and receives the answers to its earlier questions. So ask before
// acting, and ask the same question under the same key.
type Questions struct {
	Questions map[string]Question `json:"questions"`
}

// Question is one form for the user.
type Question struct {
	Message string `json:"message"`
	// Schema describes the answer: a JSON Schema of an object whose properties are
	// strings, numbers, booleans or enums (MCP 2026-07-28, client/elicitation).
	Schema json.RawMessage `json:"schema"`
}

// Answers is the response of the capability "ask". It contains the answers by the keys of their
// questions. The host has checked that each question has an answer, and that accepted content
// fits the question's schema.
type Answers struct {
	Answers map[string]Answer `json:"answers"`
}

// The actions of an answer.
const (
	AnswerAccept  = "accept"  // the user answered; Content holds the answer
	AnswerDecline = "decline" // the user said no
	AnswerCancel  = "cancel"  // the user did not answer
)

// Answer is the user's response to one question.
type Answer struct {
	Action  string          `json:"action"`
	Content json.RawMessage `json:"content,omitempty"` // the answer, a JSON object; only with [AnswerAccept]
}

// Errors to branch on with [errors.Is].
var (
	ErrQuestions = errors.New("not questions for the user")
	ErrAnswer    = errors.New("not an answer to the question")
)

// DecodeQuestions reads questions strictly. Its errors match [ErrQuestions].
func DecodeQuestions(data []byte) (Questions, error) {
	var q Questions
	if ps := decodeStrict(data, &q); len(ps) > 0 {
		return Questions{}, fmt.Errorf("%w: %s", ErrQuestions, ps[0])
	}
	if n := len(q.Questions); n == 0 || n > MaxQuestions {
		return Questions{}, fmt.Errorf("%w: found %d, expected 1 to %d", ErrQuestions, n, MaxQuestions)
	}

	for key, one := range q.Questions {
		if err := one.check(key); err != nil {
			return Questions{}, fmt.Errorf("%w: %w", ErrQuestions, err)
		}
	}

	return q, nil
}

func (q Question) check(key string) error {
	switch {
	case key == "" || len(key) > maxQuestionKey || !consists(key, letters+digits+"._-"):
		return fmt.Errorf("the key %.80q: expected 1 to %d letters, digits and . _ -", key, maxQuestionKey)
	case q.Message == "" || len(q.Message) > MaxQuestion || !utf8.ValidString(q.Message):
		return fmt.Errorf("%s: expected a message of 1 to %d bytes", key, MaxQuestion)
	case len(q.Schema) > MaxFormSchema:
		return fmt.Errorf("%s: the schema has %d bytes, and at most %d are allowed", key, len(q.Schema), MaxFormSchema)
	}

	var root struct {
		Type any `json:"type"`
	}
	if !bytes.HasPrefix(bytes.TrimSpace(q.Schema), []byte("{")) || json.Unmarshal(q.Schema, &root) != nil || root.Type != "object" {
		return fmt.Errorf("%s: expected a schema of type object", key)
	}
	return nil
}
