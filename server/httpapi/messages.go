package httpapi

import (
	"net/http"

	"github.com/toolhost/toolhost/server/wire"
)

// sendMessage sends a message to a run.
func sendMessage(r *request, in wire.Send) (int, wire.Message, error) {
	if in.Message == nil {
		return 0, wire.Message{}, invalid("message", "required")
	}
	m, err := r.session.Send(r.Context(), r.PathValue("run"), asker, in.Message)
	return http.StatusCreated, m, err
}

func listMessages(r *request, _ none) (wire.Messages, error) {
	return r.session.Messages(r.Context(), r.PathValue("run"))
}
