package mcpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
)

// tasksExtension is the extension of SEP-2663. A task is a background run of
// the caller's session, under the same id, however it came to be.
const tasksExtension = "io.modelcontextprotocol/tasks"

// The methods of the extension.
const (
	methodTaskGet    = "tasks/get"
	methodTaskUpdate = "tasks/update"
	methodTaskCancel = "tasks/cancel"
)

// taskStatus is the state of a task.
type taskStatus string

const (
	taskWorking       taskStatus = "working"
	taskInputRequired taskStatus = "input_required"
	taskCompleted     taskStatus = "completed"
	taskFailed        taskStatus = "failed"
	taskCancelled     taskStatus = "cancelled"
)

func (s taskStatus) terminal() bool { return s != taskWorking && s != taskInputRequired }

// taskParams are the parameters of all three methods.
type taskParams struct {
	mcp.ParamsBase
	TaskID         string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses,omitempty"`
}

// task is a task on the wire: CreateTaskResult, or, with what came of it, what
// tasks/get answers.
type task struct {
	mcp.ResultBase
	ResultType    string              `json:"resultType,omitempty"` // "" for a notification
	TaskID        string              `json:"taskId"`
	Status        taskStatus          `json:"status"`
	StatusMessage string              `json:"statusMessage,omitempty"`
	CreatedAt     time.Time           `json:"createdAt"`
	LastUpdatedAt time.Time           `json:"lastUpdatedAt"`
	TTLMs         int64               `json:"ttlMs"` // from CreatedAt
	PollMs        int64               `json:"pollIntervalMs"`
	Result        *taskResult         `json:"result,omitempty"`
	Error         *taskError          `json:"error,omitempty"`
	InputRequests mcp.InputRequestMap `json:"inputRequests,omitempty"`
}

// taskResult is a result of tools/call within another one. The SDK would leave
// out its type.
type taskResult struct{ *mcp.CallToolResult }

func (r taskResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ResultType        string        `json:"resultType"`
		Content           []mcp.Content `json:"content"`
		StructuredContent any           `json:"structuredContent,omitempty"`
		IsError           bool          `json:"isError,omitempty"`
	}{"complete", append([]mcp.Content{}, r.Content...), r.StructuredContent, r.IsError})
}

// taskError is why a task has failed, as JSON-RPC has it.
type taskError struct {
	Code    int64          `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data"`
}

// ack is the answer to tasks/update and tasks/cancel.
type ack struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

// addTasks serves the extension. The methods are answered by the middleware:
// only there the caller is known.
func (a *api) addTasks(srv *mcp.Server) error {
	for _, method := range []string{methodTaskGet, methodTaskUpdate, methodTaskCancel} {
		err := mcp.AddReceivingCustomMethod(srv, method, func(context.Context, *mcp.ServerSession, *taskParams) (*ack, error) {
			return nil, errors.New("answered by the middleware")
		})
		if err != nil {
			return err
		}
	}
	srv.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if r, ok := req.(*mcp.ServerRequest[*taskParams]); ok {
				if r.Params == nil { // the SDK lets it through, and would look into it
					return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: method + " needs params"}
				}
				return a.answerTask(ctx, method, a.caller(r), r.Params)
			}
			return next(ctx, method, req)
		}
	})
	return nil
}

func (a *api) answerTask(ctx context.Context, method string, who caller, params *taskParams) (mcp.Result, error) {
	if !who.tasks { // comes before the id: nobody learns of it which ids there are
		return nil, missingTasks()
	}
	switch method {
	case methodTaskGet:
		t, err := a.getTask(ctx, who, params.TaskID)
		return t, err
	case methodTaskUpdate:
		return a.updateTask(ctx, who, params)
	}
	return a.cancelTask(ctx, who, params.TaskID)
}

func missingTasks() error {
	data, _ := json.Marshal(map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{tasksExtension: struct{}{}}}})
	return &jsonrpc.Error{
		Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the request does not declare the extension " + tasksExtension, Data: data,
	}
}

// taskProblem turns an error of a run into one of the protocol. It is the same
// for tasks that never were, that are gone and that are somebody else's.
func taskProblem(id string, err error) error {
	switch {
	case errors.Is(err, background.ErrNotFound):
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("there is no task %.64q", id)}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: abi.InternalMessage}
}

func (a *api) getTask(ctx context.Context, who caller, id string) (*task, error) {
	t, err := a.taskNow(ctx, who, id)
	if err != nil {
		return nil, err
	}
	t.ResultType = "complete"
	a.shown(ctx, who, t)
	return t, nil
}

// taskNow is a task with what came of it.
func (a *api) taskNow(ctx context.Context, who caller, id string) (*task, error) {
	run, err := a.service.Runs().Get(ctx, who.session, id)
	if err != nil {
		return nil, taskProblem(id, err)
	}
	t := a.describe(run)
	switch t.Status {
	case taskWorking:
		questions, err := a.service.Questions(ctx, who.session, id)
		if err != nil {
			return nil, taskProblem(id, err)
		}
		if len(questions) > 0 {
			t.Status, t.InputRequests = taskInputRequired, inputRequests(questions)
		}
	case taskCompleted:
		t.Result = &taskResult{a.runResult(run)}
	case taskFailed:
		t.Error = &taskError{jsonrpc.CodeInternalError, run.Error.Message, map[string]any{"kind": run.Error.Kind}}
	}
	return t, nil
}

// shown takes back the notice of a task's end, which the session need not be
// told again.
func (a *api) shown(ctx context.Context, who caller, t *task) {
	if !t.Status.terminal() {
		return
	}
	if err := a.service.Acknowledge(ctx, who.session, []string{t.TaskID}); err != nil {
		a.log.Warn("notice not taken back", "task_id", t.TaskID, "error", err)
	}
}

// newTask is the answer to a call that has become a task. Its record is stored.
func (a *api) newTask(run background.Run) *task {
	t := a.describe(run)
	t.ResultType = "task"
	return t
}

// describe is what is the same of a task at all times.
func (a *api) describe(run background.Run) *task {
	t := &task{
		TaskID: run.ID, Status: statusOf(run), StatusMessage: statusMessage(run),
		CreatedAt: run.CreatedAt.UTC(), LastUpdatedAt: run.CreatedAt.UTC(),
		TTLMs: a.service.Retention().Milliseconds(), PollMs: pollInterval(time.Since(run.CreatedAt)).Milliseconds(),
	}
	for _, at := range []time.Time{run.StartedAt, run.ParkedAt, run.HeartbeatAt, run.LastOutputAt, run.FinishedAt} {
		if at.After(t.LastUpdatedAt) {
			t.LastUpdatedAt = at.UTC()
		}
	}
	if !run.FinishedAt.IsZero() { // it is kept that long from its end on
		t.TTLMs += run.FinishedAt.Sub(run.CreatedAt).Milliseconds()
	}
	return t
}

// statusOf maps a run to a task: what a tool says is a result, also that it
// could not; failed is for what gave none. A run whose end is not stored works:
// a client asks no more for a task that is in a terminal state.
func statusOf(run background.Run) taskStatus {
	switch {
	case run.Unsaved:
		return taskWorking
	case run.Status == background.StatusSucceeded,
		run.Status == background.StatusFailed && run.Error.Kind == background.KindToolError:
		return taskCompleted
	case run.Status == background.StatusFailed:
		return taskFailed
	case run.Status == background.StatusCanceled:
		return taskCancelled
	}
	return taskWorking
}

// statusMessage says in one line how far a task is, or how it ended.
func statusMessage(run background.Run) string {
	switch {
	case run.Unsaved:
		return fmt.Sprintf("%s, and that is not stored yet (is the disk full?): a crash would lose it", run.Status)
	case run.Status == background.StatusFailed:
		return run.Error.Message
	case run.Status == background.StatusCanceled && run.Cancel != nil:
		return run.Cancel.Reason
	case run.Status == background.StatusQueued:
		return "waiting for a place"
	case run.Status.Terminal():
		return run.Summary
	case run.Progress == nil:
		return run.Detail
	}
	p := run.Progress
	switch {
	case p.Total > 0 && p.Message != "":
		return fmt.Sprintf("%.0f%%: %s", 100*p.Done/p.Total, p.Message)
	case p.Total > 0:
		return fmt.Sprintf("%.0f%%", 100*p.Done/p.Total)
	}
	return cmp.Or(p.Message, run.Detail)
}

// pollInterval is how long a client should wait before it asks again.
func pollInterval(age time.Duration) time.Duration {
	return min(max(age/10, time.Second), 5*time.Second).Truncate(time.Millisecond)
}

// runResult is the result of a run as its call would have had it.
func (a *api) runResult(run background.Run) *mcp.CallToolResult {
	if run.Error != nil {
		return toResult(abi.Result{Kind: abi.ToolError, Error: run.Error.Message, Content: server.Content(run)}, false)
	}
	r := abi.Result{Kind: abi.Success, Value: run.Result, Content: server.Content(run)}
	structured := a.served.Load().tools[run.Tool].structured
	out := toResult(r, structured)
	if len(r.Value) > maxInline && !structured {
		out.Content = append(excerpt(run, r.Value), out.Content[1:]...)
	}
	return out
}

func (a *api) updateTask(ctx context.Context, who caller, params *taskParams) (mcp.Result, error) {
	questions, err := a.service.Questions(ctx, who.session, params.TaskID)
	if err != nil {
		return nil, taskProblem(params.TaskID, err)
	}
	answers := map[string]abi.Answer{}
	for key := range questions {
		response, ok := params.InputResponses[key]
		if !ok {
			continue
		}
		var elicited mcp.ElicitResult
		if err := json.Unmarshal(response, &elicited); err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("inputResponses: %s: expected the result of an elicitation", key)}
		}
		answers[key] = toAnswer(&elicited)
	}
	err = a.service.Answer(ctx, who.session, params.TaskID, answers)
	if misfit := (*server.AnswerError)(nil); errors.As(err, &misfit) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "inputResponses: " + misfit.Error()}
	}
	if err != nil {
		return nil, taskProblem(params.TaskID, err)
	}
	return &ack{ResultType: "complete"}, nil
}

// cancelWait is how long a client waits for the end of the task it cancels. The
// request stands whether it has ended by then or not.
const cancelWait = time.Second

func (a *api) cancelTask(ctx context.Context, who caller, id string) (mcp.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, cancelWait)
	defer cancel()
	_, err := a.service.Runs().Stop(ctx, who.session, id, background.StopRequest{Reason: "canceled by the client"})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, taskProblem(id, err)
	}
	return &ack{ResultType: "complete"}, nil
}
