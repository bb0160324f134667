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
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// tasksExtension is the extension of SEP-2663, which Claude Code uses. A task is a
// background run of the caller's session, with the same id, whatever started it.
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

// taskParams are the parameters of all methods, including those of 2025-11-25.
type taskParams struct {
	mcp.ParamsBase
	TaskID         string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses,omitempty"`
	Cursor         string                     `json:"cursor,omitempty"` // for tasks/list
}

// task is a task on the wire: CreateTaskResult, or the answer to tasks/get.
type task struct {
	mcp.ResultBase
	session       string              // session of the run
	ResultType    string              `json:"resultType,omitempty"` // "" in a notification
	TaskID        string              `json:"taskId"`
	Status        taskStatus          `json:"status"`
	StatusMessage string              `json:"statusMessage,omitempty"`
	CreatedAt     time.Time           `json:"createdAt"`
	LastUpdatedAt time.Time           `json:"lastUpdatedAt"`
	TTLMs         int64               `json:"ttlMs"` // milliseconds from CreatedAt
	PollMs        int64               `json:"pollIntervalMs"`
	Result        *taskResult         `json:"result,omitempty"`
	Error         *taskError          `json:"error,omitempty"`
	InputRequests mcp.InputRequestMap `json:"inputRequests,omitempty"`
}

// parkedError passes the task that a call has become through the SDK, whose handlers return
// only results that it knows, and errors.
type parkedError struct{ *task }

func (p parkedError) Error() string { return "the call is now the task " + p.TaskID }

// taskResult is a result of tools/call within another result. The SDK would omit its type.
type taskResult struct{ *mcp.CallToolResult }

func (r taskResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ResultType        string        `json:"resultType"`
		Content           []mcp.Content `json:"content"`
		StructuredContent any           `json:"structuredContent,omitempty"`
		IsError           bool          `json:"isError,omitempty"`
	}{"complete", r.Content, r.StructuredContent, r.IsError})
}

// taskError is the error of a failed task, in the form of JSON-RPC.
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

// addTasks registers the methods of the extension with the SDK.
func addTasks(srv *mcp.Server) error {
	var errs []error
	for _, method := range []string{methodTaskGet, methodTaskUpdate, methodTaskCancel, methodTaskResult, methodTaskList} {
		errs = append(errs, mcp.AddReceivingCustomMethod(srv, method, func(context.Context, *mcp.ServerSession, *taskParams) (*ack, error) {
			return nil, errors.New("the middleware answers tasks")
		}))
	}
	return errors.Join(errs...)
}

func (a *api) answerTask(ctx context.Context, method string, req *mcp.ServerRequest[*taskParams]) (result mcp.Result, err error) {
	if req.Params == nil && method == methodTaskList {
		req.Params = &taskParams{}
	}
	params := req.Params
	if params == nil { // the SDK lets it through
		return nil, invalidParams(method + " needs params")
	}

	who := callerOf(req)
	if req.ProtocolVersion() == lastLegacy {
		result, err = a.answer2025(ctx, who, method, req)
		return result, taskProblem(params.TaskID, err)
	}
	if method == methodTaskResult || method == methodTaskList {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("%q is a method of %s only", method, lastLegacy)}
	}
	if !who.tasks { // before the lookup, so that it does not show which ids exist
		return nil, missingTasks()
	}

	result = &ack{ResultType: "complete"}
	switch method {
	case methodTaskGet:
		result, err = a.getTask(ctx, who, params.TaskID)
	case methodTaskUpdate:
		err = a.updateTask(ctx, who, params)
	case methodTaskCancel:
		err = a.cancelTask(ctx, who, params.TaskID)
	}
	return result, taskProblem(params.TaskID, err)
}

func missingTasks() error {
	required := map[string]any{"extensions": map[string]any{tasksExtension: struct{}{}}} // the SDK's type adds roots
	data, _ := json.Marshal(map[string]any{"requiredCapabilities": required})
	return &jsonrpc.Error{
		Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the request does not declare the extension " + tasksExtension, Data: data,
	}
}

// taskProblem turns an error of a run into one of the protocol. It is the same for tasks
// that never existed, that were removed, and that belong to somebody else.
func taskProblem(id string, err error) error {
	if err == nil {
		return nil
	}
	if coded, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return coded
	}

	switch reason := server.ReasonOf(err); reason.Code {
	case wire.CodeNotFound:
		return invalidParams(fmt.Sprintf("there is no task %.64q", id))
	case wire.CodeInvalid:
		return invalidParams("inputResponses: " + reason.Text)
	case wire.CodeCanceled, wire.CodeTime:
		return err
	}
	return hostError(err)
}

func (a *api) getTask(ctx context.Context, who caller, id string) (*task, error) {
	t, err := a.taskNow(ctx, who, id)
	if err != nil {
		return nil, err
	}
	t.ResultType = "complete"
	a.acknowledgeEnd(ctx, t)
	return t, nil
}

// taskNow returns a task with its result, its error or its questions.
func (a *api) taskNow(ctx context.Context, who caller, id string) (*task, error) {
	view := a.service.Session(who.Session)
	run, err := view.Run(ctx, id)
	if err != nil {
		return nil, err
	}

	t := a.describe(run)
	switch t.Status {
	case taskWorking:
		questions, err := view.Questions(ctx, id)
		if err != nil {
			return nil, err
		}
		if len(questions) > 0 {
			t.Status, t.InputRequests = taskInputRequired, inputRequests(questions)
		}
	case taskCompleted:
		if run, err = view.WholeRun(ctx, id); err != nil {
			return nil, err
		}
		t.Result = &taskResult{runResult(run, a.served.Load().tools[run.Tool].structured, a.service.MaxAnswer())}
	case taskFailed:
		t.Error = &taskError{jsonrpc.CodeInternalError, run.Error.Message, map[string]any{"kind": run.Error.Kind}}
	}
	return t, nil
}

// acknowledgeEnd acknowledges the end of a task that the client has seen. Its session
// needs no notice of it.
func (a *api) acknowledgeEnd(ctx context.Context, t *task) {
	if !t.Status.terminal() {
		return
	}
	if err := a.service.Session(t.session).Acknowledge(ctx, []string{t.TaskID}); err != nil {
		a.log.Warn("cannot acknowledge the end of a task", "task_id", t.TaskID, "error", err)
	}
}

// newTask returns the answer to a call that has become a task. The record of the task is
// already stored.
func (a *api) newTask(run wire.Run) *task {
	t := a.describe(run)
	t.ResultType = "task"
	return t
}

// describe returns a task without its result, its error and its questions.
func (a *api) describe(run wire.Run) *task {
	t := &task{
		session: run.Session, TaskID: run.TaskID, Status: statusOf(run), StatusMessage: statusMessage(run),
		CreatedAt: run.CreatedAt.UTC(), LastUpdatedAt: run.CreatedAt.UTC(),
		TTLMs: a.service.Retention().Milliseconds(), PollMs: pollInterval(time.Since(run.CreatedAt)).Milliseconds(),
	}

	for _, at := range []time.Time{run.StartedAt, run.ParkedAt, run.LastOutputAt, run.FinishedAt} {
		if at.After(t.LastUpdatedAt) {
			t.LastUpdatedAt = at.UTC()
		}
	}
	if run.Status == wire.StatusRunning { // progress has no time
		t.LastUpdatedAt = time.Now().UTC()
	}
	if !run.FinishedAt.IsZero() { // the run is kept that long after its end
		t.TTLMs += run.FinishedAt.Sub(run.CreatedAt).Milliseconds()
	}
	return t
}

// statusOf returns the status of a run's task. A tool's own failure is a result;
// taskFailed is for runs without one. A run whose end is not stored counts as working,
// because clients do not ask again about a task that has ended.
func statusOf(run wire.Run) taskStatus {
	switch {
	case run.Unsaved:
		return taskWorking
	case run.Status == wire.StatusSucceeded,
		run.Status == wire.StatusFailed && run.Error.Kind == wire.KindToolError:
		return taskCompleted
	case run.Status == wire.StatusFailed:
		return taskFailed
	case run.Status == wire.StatusCanceled:
		return taskCancelled
	}
	return taskWorking
}

// statusMessage describes in one line how far a task has come, or how it ended.
func statusMessage(run wire.Run) string {
	switch {
	case run.Unsaved:
		return fmt.Sprintf("%s, but that is not stored yet (is the disk full?): a crash would lose it", run.Status)
	case run.Status == wire.StatusFailed:
		return run.Error.Message
	case run.Status == wire.StatusCanceled && run.Stopping != nil:
		return run.Stopping.Reason
	case run.Status == wire.StatusQueued && run.Held != "":
		return "waiting for " + run.Held
	case run.Status == wire.StatusQueued:
		return "waiting for a slot"
	case run.Status == wire.StatusWaiting && run.Progress == nil && run.Detail == "":
		return waiting(run)
	case run.Status.Terminal():
		return run.Summary
	case run.Progress == nil:
		return run.Detail
	}

	message := cmp.Or(run.Progress.Message, run.Detail)
	if run.Progress.Total <= 0 {
		return message
	}
	percent := fmt.Sprintf("%.0f%%", 100*run.Progress.Done/run.Progress.Total)
	if run.Progress.Message == "" {
		return percent
	}
	return percent + ": " + message
}

// waiting returns a text that says that a run waits, and until when if that is known.
func waiting(run wire.Run) string {
	if run.WaitsUntil.IsZero() {
		return "waiting"
	}
	return "waiting until " + run.WaitsUntil.UTC().Format(time.RFC3339)
}

// pollInterval returns how long a client should wait before it asks again.
func pollInterval(age time.Duration) time.Duration {
	return min(max(age/10, time.Second), 5*time.Second).Truncate(time.Millisecond)
}

// runResult returns the result of a run in the form of a call's result. A value of more than
// most bytes is replaced by its beginning.
func runResult(run wire.Run, structured bool, most int64) *mcp.CallToolResult {
	if run.Error != nil {
		return toResult(abi.Result{Kind: abi.ToolError, Error: run.Error.Message, Content: run.Content}, false)
	}

	out := toResult(abi.Result{Kind: abi.Success, Value: run.Result, Content: run.Content}, structured)
	if int64(len(run.Result)) > most {
		abridge(out, run.TaskID, run.Result)
	}
	return out
}

func (a *api) updateTask(ctx context.Context, who caller, params *taskParams) error {
	view := a.service.Session(who.Session)
	questions, err := view.Questions(ctx, params.TaskID)
	if err != nil {
		return err
	}

	answers := map[string]abi.Answer{}
	for key := range questions {
		response, ok := params.InputResponses[key]
		if !ok {
			continue
		}
		var elicited mcp.ElicitResult
		if err := json.Unmarshal(response, &elicited); err != nil {
			return invalidParams(fmt.Sprintf("inputResponses: %s: expected the result of an elicitation", key))
		}
		answers[key] = toAnswer(&elicited)
	}
	return view.Answer(ctx, params.TaskID, answers)
}

// cancelWait is how long a client waits for the end of a task it cancels. The
// cancellation stands if the task takes longer.
const cancelWait = time.Second

func (a *api) cancelTask(ctx context.Context, who caller, id string) error {
	ctx, cancel := context.WithTimeout(ctx, cancelWait)
	defer cancel()
	_, err := a.service.Session(who.Session).Stop(ctx, id, "", wire.Stop{Reason: "canceled by the client"})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
