package runs

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// payloads has the large parts of runs.
type payloads interface {
	Payload(ctx context.Context, session, id string, part engine.Part) (json.RawMessage, error)
}

// load reads parts of a run. They stay nil if the record is gone.
func load(ctx context.Context, from payloads, r *engine.Run, parts ...engine.Part) error {
	to := map[engine.Part]*json.RawMessage{engine.PartArgs: &r.Args, engine.PartResult: &r.Result, engine.PartContent: &r.Content}
	for _, part := range parts {
		data, err := from.Payload(ctx, r.Session, r.ID, part)
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			return err
		}
		*to[part] = data
	}
	return nil
}
