package guest

import (
	"encoding/json"

	"github.com/toolhost/toolhost/abi"
)

// Question is one form for the user and Answer is the reply. [abi.Questions] has
// the rules.
type (
	Question = abi.Question
	Answer   = abi.Answer
)

const opAsk = "ask"

// Ask asks the user all questions at once, each under a key that the plugin
// chooses, and waits for the answers. Without the grant ask, or if the client cannot
// ask, the error matches [ErrDenied].
//
// Ask before the tool changes anything: a client may answer by repeating the call,
// which runs the tool from its beginning.
func (c *Call) Ask(questions map[string]Question) (map[string]Answer, error) {
	var out abi.Answers
	err := c.Host(opAsk, abi.Questions{Questions: questions}, &out)
	return out.Answers, err
}

// Form makes a question whose answer is described by a JSON schema of an object.
func Form(message, schema string) Question {
	return Question{Message: message, Schema: json.RawMessage(schema)}
}
