package main

import (
	"context"
	"sync"

	"github.com/toolhost/toolhost"
)

// notebook is what the program keeps for the model.
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

// tool is a tool that the program has itself: nothing but a function of its own.
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
