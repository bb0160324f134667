package agent

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/wire"
)

// A messenger sends messages to runs. In a dry run it sends nothing. An empty by means the
// agent.
type messenger interface {
	Send(ctx context.Context, id, by string, message json.RawMessage) (wire.Message, error)
	Run(ctx context.Context, id string) (wire.Run, error)
}

// messageAnswer is the answer of message_background.
type messageAnswer struct {
	TaskID    string      `json:"task_id"`
	Status    wire.Status `json:"status"` // status of the run
	MessageID int64       `json:"message_id,omitempty"`
	DryRun    bool        `json:"dry_run,omitempty"`
}

// message sends a message to a run.
func message(ctx context.Context, s Session, c Call) (any, error) {
	in, err := decode[struct {
		ID      string          `json:"task_id"`
		Message json.RawMessage `json:"message"`
	}](c.Args)
	if err != nil {
		return nil, err
	}

	var text string
	if json.Unmarshal(in.Message, &text) == nil { // models write objects as strings
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
			parsed, err := catalog.ParseArgs("", catalog.Args{}, json.RawMessage(text)) // parsed strictly, like an object
			if err != nil {
				return nil, err
			}
			in.Message = parsed.Raw()
		}
	}

	id := strings.TrimSpace(in.ID)
	sent, err := s.Send(ctx, id, "", in.Message)
	if err != nil {
		return nil, err
	}
	run, err := s.Run(ctx, id)
	return messageAnswer{TaskID: id, Status: run.Status, MessageID: sent.ID, DryRun: c.DryRun}, err
}
