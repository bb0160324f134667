package guest

import (
	"encoding/json"

	"github.com/toolhost/toolhost/abi"
)

// Question is one form put to the user, Answer what came of it: see
// [abi.Questions] for what may be asked, and how.
type (
	Question = abi.Question
	Answer   = abi.Answer
)

const opAsk = "ask"

// Ask puts questions to the user, all at once, each under a key of the plugin's
// choice, and waits for the answers. The plugin needs the grant for it, and the
// call a client that can ask: without, the error matches [ErrDenied].
//
// Ask before the tool changes anything: a client may answer by calling again,
// which runs the tool again from its beginning.
func (c *Call) Ask(questions map[string]Question) (map[string]Answer, error) {
	var out abi.Answers
	err := c.Host(opAsk, abi.Questions{Questions: questions}, &out)
	return out.Answers, err
}

// Form makes a question whose answer is described by a JSON schema of an object.
func Form(message, schema string) Question {
	return Question{Message: message, Schema: json.RawMessage(schema)}
}
