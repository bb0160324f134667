// Command agent is an agent loop built on package toolhost, to be read and copied. The
// definitions of the tools go to a model, the model's calls go to Session.Call, and the
// model learns at its next turn which background runs have ended. A script takes the place
// of the model, so that the command runs without an API key:
//
//	go run ./examples/agent
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhost/toolhost"
	"github.com/toolhost/toolhost/server"
)

const (
	maxMessages = 6 // messages after which the conversation is compacted; a real agent counts tokens

	// maxResult limits what the model sees of a result. A tool may write up to 8 MiB, which
	// would fill the model's context and make every further turn fail.
	maxResult = 50_000 // bytes
)

func main() {
	toolhost.Main() // first of all: plugins are compiled in a child process, which is this program
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	folder, err := buildPlugins(ctx, "")
	if err == nil {
		err = run(ctx, folder, script, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// run opens a service with a folder of plugins, does one task, and ends the session.
func run(ctx context.Context, folder string, m model, out io.Writer) (err error) {
	th, err := toolhost.Open(ctx, toolhost.Config{
		Plugins: []string{folder},
		Grants:  toolhost.Grants{"clock": {Clock: true}},
		Tools:   []toolhost.Tool{new(notebook).tool()}, // of this program, next to those of the plugins
		Cache:   cacheDir(),
		Server:  func(c *server.Config) { c.ParkAfter = time.Second }, // 10 minutes if left out
	})
	if err != nil {
		return err
	}

	s := th.Session("session-1")
	defer func() { // also when ctx has ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err,
			s.End(ctx),    // stops its parked calls
			th.Close(ctx), // waits for what else runs, then interrupts it
		)
	}()
	if err := th.Compile(ctx, nil); err != nil { // or the first call of each plugin waits for it, and may be parked
		return err
	}
	return (&agent{s, m, out}).do(ctx, task)
}

type agent struct {
	session toolhost.Session
	model   model
	out     io.Writer // where the transcript goes
}

// do is the agent loop. It ends with a turn in which the model calls no tools, once the
// model knows the end of every run.
func (a *agent) do(ctx context.Context, task string) error {
	tools := a.session.Tools().Anthropic() // or OpenAI(), MCP()
	messages := a.add(nil, message{Role: user, Text: task})
	for more := true; more; {
		var err error
		if messages, err = a.compact(ctx, messages); err != nil {
			return err
		}
		if messages, err = a.turn(ctx, messages, tools); err != nil {
			return err
		}
		if last := messages[len(messages)-1]; len(last.Calls) > 0 {
			messages = a.add(messages, message{Role: user, Results: a.callAll(ctx, last.Calls)})
		} else if more, err = a.session.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// turn tells the model which runs have ended, and then asks for its reply. If the model
// fails, it is told about the same runs again.
func (a *agent) turn(ctx context.Context, messages []message, tools []tool) ([]message, error) {
	ended, shown, err := a.session.Ended(ctx)
	if err != nil {
		return nil, err
	}
	if ended != "" {
		messages = a.add(messages, message{Role: user, Text: ended}) // as data, never in the system role
	}

	reply, err := a.model(ctx, messages, tools)
	if err != nil {
		return nil, err
	}
	return a.add(messages, message{Role: assistant, Text: reply.Text, Calls: reply.Calls}), shown(ctx)
}

// callAll makes calls concurrently. The results are in the order of the calls.
func (a *agent) callAll(ctx context.Context, calls []call) []result {
	results := make([]result, len(calls))
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() {
			r, err := a.session.Call(ctx, c.Name, c.Input)
			if err != nil {
				log.Print(err) // for the operator; the result is for the model in any case
			}
			results[i] = result{c.ID, cut(r.Text()), r.IsError(), r.Content}
		})
	}

	wg.Wait()
	return results
}

// cut shortens the output of a tool to what the model is shown, and says that it did.
func cut(text string) string {
	if len(text) <= maxResult {
		return text
	}
	return fmt.Sprintf("%s\n[these are the first %d of %d bytes]", strings.ToValidUTF8(text[:maxResult], ""), maxResult, len(text))
}

// compact replaces a conversation that has become long by the task, the model's own summary,
// and what is going on in the background.
func (a *agent) compact(ctx context.Context, messages []message) ([]message, error) {
	if len(messages) <= maxMessages {
		return messages, nil
	}
	summary, err := a.model(ctx, append(slices.Clone(messages), message{Role: user, Text: summarize}), nil)
	if err != nil {
		return nil, err
	}
	running, err := a.session.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return a.add(messages[:1], message{Role: user, Text: soFar + summary.Text + "\n" + running}), nil
}

// add appends a message and prints it.
func (a *agent) add(messages []message, m message) []message {
	fmt.Fprint(a.out, m)
	return append(messages, m)
}
