package mcpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// Revision 2025-11-25 has a different kind of tasks (basic/utilities/tasks), which the
// next revision dropped. VS Code and the MCP Inspector use them: the client requests a
// task with the call, gets it at once, and waits for the result with another request.
// These tasks are background runs too.
const (
	methodTaskResult = "tasks/result"
	methodTaskList   = "tasks/list"

	metaRelatedTask = "io.modelcontextprotocol/related-task"
)

// tasksPage is the number of tasks in an answer to tasks/list.
const tasksPage = 50

// task2025 is a task of 2025-11-25.
type task2025 struct {
	TaskID        string     `json:"taskId"`
	Status        taskStatus `json:"status"`
	StatusMessage string     `json:"statusMessage,omitempty"`
	CreatedAt     time.Time  `json:"createdAt"`
	LastUpdatedAt time.Time  `json:"lastUpdatedAt"`
	TTL           int64      `json:"ttl"`          // milliseconds from CreatedAt
	PollInterval  int64      `json:"pollInterval"` // milliseconds
}

// The results of 2025-11-25 that the SDK does not know.
type (
	createdTask struct {
		mcp.ResultBase
		Task task2025 `json:"task"`
	}
	shownTask struct {
		mcp.ResultBase
		task2025
	}
	listedTasks struct {
		mcp.ResultBase
		Tasks      []task2025 `json:"tasks"`
		NextCursor string     `json:"nextCursor,omitempty"`
	}
	initialized struct {
		*mcp.InitializeResult
		Capabilities capabilities2025 `json:"capabilities"`
	}
	capabilities2025 struct {
		*mcp.ServerCapabilities
		Tasks json.RawMessage `json:"tasks"`
	}
	listedTools struct {
		*mcp.ListToolsResult
		Tools []tool2025 `json:"tools"`
	}
	tool2025 struct {
		*mcp.Tool
		Execution *execution `json:"execution,omitempty"`
	}
	execution struct {
		TaskSupport string `json:"taskSupport"`
	}
)

var tasksCapability2025 = json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)

func (t *task) as2025() task2025 {
	return task2025{t.TaskID, t.Status, t.StatusMessage, t.CreatedAt, t.LastUpdatedAt, t.TTLMs, t.PollMs}
}

// initialize2025 advertises tasks to a client of 2025-11-25.
func initialize2025(r *mcp.InitializeResult) mcp.Result {
	if r.ProtocolVersion != lastLegacy {
		return r
	}
	return &initialized{r, capabilities2025{r.Capabilities, tasksCapability2025}}
}

// list2025 shows a client of 2025-11-25 which tools can be tasks.
func list2025(r *mcp.ListToolsResult, known map[string]toolEntry) mcp.Result {
	out := &listedTools{ListToolsResult: r, Tools: []tool2025{}}
	for _, tool := range r.Tools {
		t := tool2025{Tool: tool}
		if known[tool.Name].background {
			t.Execution = &execution{"optional"}
		}
		out.Tools = append(out.Tools, t)
	}
	return out
}

// create2025 starts the task that a call requests.
func (a *api) create2025(ctx context.Context, who caller, req *mcp.CallToolRequest) (mcp.Result, error) {
	if !a.served.Load().tools[req.Params.Name].background {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: req.Params.Name + " cannot be called as a task"}
	}

	key, locale, err := metaOf(req, who)
	if err != nil {
		return nil, err
	}
	run, err := a.service.Session(who.Session).Spawn(ctx, server.SpawnRequest{
		Tool: req.Params.Name, Args: req.Params.Arguments, Silent: true, IdempotencyKey: key, Locale: locale,
	})
	if err != nil {
		reason := server.ReasonOf(err)
		switch reason.Code {
		case wire.CodeNotFound:
			return nil, unknownTool(req.Params.Name)
		case wire.CodeInternal, wire.CodeTrap, wire.CodePlugin:
			a.log.Error("cannot start a task", "tool", req.Params.Name, "session", who.Session, "error", err)
		}
		return failed(reason.Text), nil // a call may be answered with its result at once
	}
	return &createdTask{Task: a.describe(run).as2025()}, nil
}

// answer2025 answers the task methods for a client of 2025-11-25.
func (a *api) answer2025(ctx context.Context, who caller, method string, req *mcp.ServerRequest[*taskParams]) (mcp.Result, error) {
	view, id := a.service.Session(who.Session), req.Params.TaskID
	switch method {
	case methodTaskGet:
		t, err := a.taskNow(ctx, who, id)
		if err != nil {
			return nil, err
		}
		return &shownTask{task2025: t.as2025()}, nil

	case methodTaskCancel:
		if run, err := view.Run(ctx, id); err != nil {
			return nil, err
		} else if run.Status.Terminal() {
			return nil, invalidParams(fmt.Sprintf("the task has ended already: %s", statusOf(run)))
		}
		if err := a.cancelTask(ctx, who, id); err != nil {
			return nil, err
		}
		run, err := view.Run(ctx, id)
		return &shownTask{task2025: a.describe(run).as2025()}, err

	case methodTaskList:
		runs, err := view.Runs(ctx, server.RunQuery{Before: req.Params.Cursor, Limit: tasksPage})
		if err != nil {
			return nil, err
		}
		out := &listedTasks{Tasks: []task2025{}}
		for _, run := range runs {
			out.Tasks = append(out.Tasks, a.describe(run).as2025())
		}
		if len(runs) == tasksPage {
			out.NextCursor = runs[tasksPage-1].TaskID
		}
		return out, nil

	case methodTaskResult:
		return a.awaitTask(ctx, who, req.Session, id)
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("%q is not a method of this revision", method)}
}

// awaitTask waits for the end of a task and returns the result of its call. While it waits,
// it asks the client's user the tool's questions.
func (a *api) awaitTask(ctx context.Context, who caller, session *mcp.ServerSession, id string) (mcp.Result, error) {
	view := a.service.Session(who.Session)
	for {
		found, err := view.Check(ctx, server.CheckRequest{IDs: []string{id}, Wait: server.MaxWait})
		if err != nil {
			return nil, err
		}
		if len(found.Runs) > 0 && found.Runs[0].Status.Terminal() && !found.Runs[0].Unsaved {
			break
		}

		questions, err := view.Questions(ctx, id)
		if err != nil {
			return nil, err
		}
		if len(questions) == 0 {
			continue
		}
		if err := a.elicitForTask(ctx, who, session, id, questions); err != nil {
			return nil, err
		}
	}

	t, err := a.taskNow(ctx, who, id)
	if err != nil {
		return nil, err
	}
	a.acknowledgeEnd(ctx, t)

	var out *mcp.CallToolResult
	switch {
	case t.Result != nil:
		out = t.Result.CallToolResult
	case t.Error != nil:
		out = failed(t.Error.Message)
	default:
		out = failed("the task was canceled")
	}
	out.Meta = mcp.Meta{metaRelatedTask: map[string]string{"taskId": id}}
	return out, nil
}

// elicitForTask asks the client's user the questions of a task.
func (a *api) elicitForTask(ctx context.Context, who caller, session *mcp.ServerSession, id string, questions map[string]abi.Question) error {
	if !who.elicits {
		return invalidParams("the task asks its user, and the client does not declare elicitation: cancel the task")
	}

	answers := map[string]abi.Answer{}
	for _, key := range slices.Sorted(maps.Keys(questions)) {
		params := elicitation(questions[key])
		params.Meta = mcp.Meta{metaRelatedTask: map[string]string{"taskId": id}}
		result, err := session.Elicit(ctx, params)
		if err != nil {
			return err
		}
		answers[key] = toAnswer(result)
	}

	err := a.service.Session(who.Session).Answer(ctx, id, answers)
	if err != nil && server.ReasonOf(err).Code == wire.CodeInvalid { // then it is asked again
		a.log.Debug("an answer does not fit its question", "task_id", id, "error", err)
		return nil
	}
	return err
}
