package main

import (
	"context"
	"sync"

	"github.com/toolhost/toolhost"
)

// notebook holds what the program writes down for the model.
type notebook struct {
	mu    sync.Mutex
	notes []string
}

type noteArgs struct {
	Text string `json:"text" desc:"One fact in a sentence" min:"1" max:"200"`
}

type noteResult struct {
	Notes int `json:"notes" desc:"How many there are"`
}

// tool returns a tool that is part of the program: it is simply a function.
func (n *notebook) tool() toolhost.Tool {
	add := func(_ context.Context, _ *toolhost.ToolCall, in noteArgs) (noteResult, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.notes = append(n.notes, in.Text)
		return noteResult{len(n.notes)}, nil
	}
	return toolhost.Tool{
		Name: "note", Description: "Keep a fact for the user.",
		Hints:   toolhost.Hints{Destructive: new(false), OpenWorld: new(false)},
		Handler: toolhost.Handle(add),
	}
}
