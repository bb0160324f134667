package guest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/typed"
)

// ToolAnswer is the outcome of calling another tool.
type ToolAnswer = abi.ToolAnswer

// CallTool calls another tool by the name that agents use, and decodes its result into result,
// a pointer or nil. The tool must be in Plugin.Needs.Tools and granted; otherwise the error
// matches [ErrDenied]. The tool runs in the session of this call. The host makes the same
// checks as for an agent, so the tool may need approval. Its fuel and time count toward those
// of this call.
//
// If the tool does not return a result, the error is a [*ToolError]. Return it unchanged: if
// the tool requires a connection, your own caller then learns which one.
func (c *Call) CallTool(name string, args, result any) error {
	answer, err := c.ToolAnswer(name, args, 0)
	if err != nil {
		return err
	}
	if answer.Kind != abi.Success {
		return &ToolError{name, answer}
	}
	if result == nil || answer.Value == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Value, result); err != nil {
		return fmt.Errorf("the result of %s: %w", name, err)
	}
	return nil
}

// ToolAnswer is like [Call.CallTool], but returns every outcome of the tool, with its content:
// failures of any kind are not errors here. timeout limits the tool's time; 0 means the tool's
// own limit.
func (c *Call) ToolAnswer(name string, args any, timeout time.Duration) (ToolAnswer, error) {
	data, err := typed.Marshal(args)
	if err != nil {
		return ToolAnswer{}, fmt.Errorf("the arguments of %s: %w", name, err)
	}
	if string(data) == "null" { // no arguments
		data = []byte("{}")
	}

	request := struct {
		Tool      string          `json:"tool"`
		Args      json.RawMessage `json:"args"`
		TimeoutMS int64           `json:"timeout_ms,omitempty"`
	}{name, data, int64((max(0, timeout) + time.Millisecond - 1) / time.Millisecond)}
	var answer ToolAnswer
	err = c.Host("tool.call", request, &answer)
	return answer, err
}

// ToolError is the error of a called tool that returned no result.
type ToolError struct {
	Tool   string
	Answer ToolAnswer // outcome of the call
}

func (e *ToolError) Error() string { return e.Tool + ": " + e.Answer.Error }

// As lets a tool return the error in order to require the same connection as the called tool.
func (e *ToolError) As(target any) bool {
	to, ok := target.(**connectionError)
	if !ok || e.Answer.Kind != abi.ConnectionRequired || e.Answer.Connection == nil {
		return false
	}
	*to = &connectionError{*e.Answer.Connection}
	return true
}
