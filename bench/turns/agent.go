package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tiktoken-go/tokenizer"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/plugins/script"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// usage is what a model reads and writes until a task is done, in tokens.
type usage struct {
	turns, calls int
	read         int // at all turns: definitions, and all of the conversation before
	needed       int // read, if only the tools that are used had definitions
	fresh        int // of read, without definitions: what was not there at an earlier turn
	written      int // calls and the answer
}

func (u *usage) add(v usage) {
	u.turns += v.turns
	u.calls += v.calls
	u.read += v.read
	u.needed += v.needed
	u.fresh += v.fresh
	u.written += v.written
}

// price is the usage as price lists weigh it, in tokens that are read for the first time:
// one that is read again from a cache costs a tenth, one that is written five times as much.
func (u usage) price() float64 {
	return float64(u.fresh) + float64(u.read-u.fresh)/10 + 5*float64(u.written)
}

// call is what a model writes to call a tool.
type call struct {
	Name  string `json:"name"`
	Input any    `json:"input"`
}

// answer is what a model reads of a call.
type answer struct {
	text   string
	failed bool
}

// agent is a conversation. It stands for the model, which says what the task has it say:
// each call is made over MCP, and what it reads is what came back.
type agent struct {
	*office
	session     *mcp.ClientSession
	codec       tokenizer.Codec
	definitions map[string]int // tokens, by tool

	used    usage
	context int             // tokens of the conversation so far
	seen    int             // of them, read at an earlier turn
	names   map[string]bool // of the tools called
	found   []string        // by tools_search
}

// stop is panicked with by an agent that cannot do its task.
type stop struct{ error }

func (a *agent) stop(format string, args ...any) { panic(stop{fmt.Errorf(format, args...)}) }

func (a *agent) count(text string) int {
	n, err := a.codec.Count(text)
	if err != nil {
		a.stop("counting tokens: %w", err)
	}
	return n
}

// says adds what the model says or reads to the conversation.
func (a *agent) says(text string) int {
	n := a.count(text)
	a.context += n
	return n
}

// reads counts what the model reads before it says something.
func (a *agent) reads() {
	a.used.turns++
	a.used.read += a.context
	for _, n := range a.definitions {
		a.used.read += n
	}
	a.used.fresh += a.context - a.seen
	a.seen = a.context
}

// turn is one turn of the model that calls tools, all at once.
func (a *agent) turn(calls ...call) []answer {
	a.reads()
	for _, c := range calls {
		a.used.written += a.says(encode(c))
	}

	answers := make([]answer, 0, len(calls))
	for _, c := range calls {
		one := a.make(c)
		a.says(one.text)
		answers = append(answers, one)
	}
	return answers
}

func (a *agent) make(c call) answer {
	if a.definitions[c.Name] == 0 {
		a.stop("the model does not know %s", c.Name)
	}
	a.used.calls++
	a.names[c.Name] = true
	r, err := a.session.CallTool(context.Background(), &mcp.CallToolParams{Name: c.Name, Arguments: c.Input})
	if err != nil {
		a.stop("%s: %w", c.Name, err)
	}

	var texts []string
	for _, block := range r.Content {
		text, ok := block.(*mcp.TextContent)
		if !ok {
			a.stop("%s: content of type %T", c.Name, block)
		}
		texts = append(texts, text.Text)
	}
	one := answer{strings.Join(texts, "\n"), r.IsError}
	if c.Name == server.ToolsSearch {
		a.found = append(a.found, one.text)
	}
	return one
}

// answers is the last turn, in which the model writes the answer.
func (a *agent) answers(value any) {
	a.reads()
	a.used.written += a.count(encode(value))
	a.used.needed = a.used.read
	for name, n := range a.definitions {
		if !a.names[name] {
			a.used.needed -= a.used.turns * n
		}
	}
}

// ask calls tools that must not fail, and returns what each has answered.
func ask[T any](a *agent, calls ...call) []T {
	values := make([]T, 0, len(calls))
	for _, one := range a.turn(calls...) {
		values = append(values, decode[T](a, one))
	}
	return values
}

func decode[T any](a *agent, one answer) (v T) {
	if err := json.Unmarshal([]byte(one.text), &v); err != nil || one.failed {
		a.stop("a call was answered: %s", one.text)
	}
	return v
}

// search has the model look for tools.
func (a *agent) search(queries ...string) {
	var calls []call
	for _, q := range queries {
		calls = append(calls, call{server.ToolsSearch, args{"query": q}})
	}
	a.turn(calls...)
}

// exec has the model run a script, and returns what it has returned. Over MCP a string is
// its own text, and another value that is no object is the result of one.
func (a *agent) exec(code string) any {
	one := a.turn(call{server.Exec, args{"code": dedent(code)}})[0]
	if one.failed {
		a.stop("the script failed: %s", one.text)
	}
	var value any
	if json.Unmarshal([]byte(one.text), &value) != nil {
		return one.text
	}
	if object, ok := value.(map[string]any); ok && len(object) == 1 && object["result"] != nil {
		return object["result"]
	}
	return value
}

// fails has the model run a script that is wrong.
func (a *agent) fails(code string) {
	if one := a.turn(call{server.Exec, args{"code": dedent(code)}})[0]; !one.failed {
		a.stop("the script did not fail: %s", one.text)
	}
}

// foundAll returns an error for a tool that scripts have used and no search had found:
// the model could not have known it.
func (a *agent) foundAll(used []string) error {
	for _, name := range used {
		if !strings.Contains(strings.Join(a.found, "\n"), `"`+name+`"`) {
			return fmt.Errorf("%s was not found by a search", name)
		}
	}
	return nil
}

// way is how the model works: with a definition of each tool, or with exec.
type way struct {
	*office
	service *server.Service
	session *mcp.ClientSession
	codec   tokenizer.Codec
	scripts bool
	close   func()

	definitions map[string]int
}

// open starts a server over MCP for one way of working.
func open(ctx context.Context, scripts bool, cacheDir string) (w *way, err error) {
	w = &way{office: &office{}, scripts: scripts, definitions: map[string]int{}}
	if w.codec, err = tokenizer.Get(tokenizer.O200kBase); err != nil {
		return nil, err
	}
	if w.service, err = server.Open(ctx, config(w.office, scripts, cacheDir)); err != nil {
		return nil, err
	}

	serverIn, toServer := io.Pipe()
	fromServer, serverOut := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- mcpapi.Run(ctx, w.service, mcpapi.Config{Version: "1", In: serverIn, Out: serverOut})
		_ = serverOut.Close()
	}()
	w.close = func() {
		if w.session != nil {
			_ = w.session.Close()
		}
		_ = toServer.Close()
		<-ended
		_ = w.service.Close(context.Background())
	}

	client := mcp.NewClient(&mcp.Implementation{Name: "turns", Version: "1"}, nil)
	if w.session, err = client.Connect(ctx, &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil); err == nil {
		err = w.list(ctx)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// config is a server with the tools of an office, and with exec if models write scripts.
func config(o *office, scripts bool, cacheDir string) server.Config {
	cfg := server.Config{Tools: o.tools(), CacheDir: cacheDir, ParkAfter: -1}
	if scripts {
		cfg.Folders = []plugins.Folder{{Path: "built-in", FS: script.FS}}
		cfg.Grants = map[string]plugins.Grant{server.Exec: {Clock: true, Ask: true, Tools: []string{abi.EveryTool}}}
		cfg.Listing = map[string]server.Listing{"*": server.ListBySearch}
	}
	return cfg
}

// list counts what a model is told of the tools: name, description and input schema, as
// clients of MCP pass them on.
func (w *way) list(ctx context.Context) error {
	for tool, err := range w.session.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		definition := encode(struct {
			Name        string `json:"name"`
			Description string `json:"description"`
			InputSchema any    `json:"input_schema"`
		}{tool.Name, tool.Description, tool.InputSchema})
		if w.definitions[tool.Name], err = w.codec.Count(definition); err != nil {
			return err
		}
	}
	return nil
}

// outcome is how a task has ended.
type outcome struct {
	usage
	answer  string
	effects []string
}

// do does a task in a new office.
func (w *way) do(t task) (out outcome, err error) {
	w.reset()
	a := &agent{office: w.office, session: w.session, codec: w.codec, definitions: w.definitions, names: map[string]bool{}}
	defer func() {
		if s, ok := recover().(stop); ok {
			err = fmt.Errorf("%s: %w", t.name, s.error)
		}
	}()

	a.says(t.asks)
	how := t.turns
	if w.scripts {
		how = t.script
	}
	value := how(a)
	a.answers(value)
	if w.scripts {
		err = a.foundAll(w.used())
	}
	return outcome{a.used, encode(value), w.effects()}, err
}

// encode is JSON as models write it.
func encode(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(stop{err})
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// dedent takes the margin off a script.
func dedent(code string) string {
	lines := strings.Split(strings.Trim(code, "\n\t"), "\n")
	margin := "\t\t\t"
	for i, line := range lines {
		line = strings.TrimPrefix(line, margin)
		body := strings.TrimLeft(line, "\t")
		lines[i] = strings.Repeat("  ", len(line)-len(body)) + body
	}
	return strings.Join(lines, "\n")
}
