package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// mcpMessage is an answer of the MCP server.
type mcpMessage struct {
	Result struct {
		ResultType string
		Content    []struct{ Text string }
		IsError    bool
		TaskID     string
		Status     string
		Tools      []json.RawMessage
		Result     *struct {
			Content []struct{ Text string }
		}
		ProtocolVersion string
	}
	Error *struct {
		Code    int
		Message string
	}
}

// text is what the answer says first.
func (m *mcpMessage) text() string {
	if len(m.Result.Content) == 0 {
		return ""
	}
	return m.Result.Content[0].Text
}

// mcp posts a message and returns the last one of the answer.
func (c *loadClient) mcp(ctx context.Context, what, body string, headers ...string) (m mcpMessage, header http.Header, err error) {
	headers = append(headers, "Accept", "application/json, text/event-stream")
	a, err := c.do(ctx, what, "POST", "/mcp", json.RawMessage(body), nil, []int{http.StatusOK, http.StatusAccepted}, headers...)
	if err != nil {
		return m, nil, err
	}
	for line := range bytes.Lines(a.body) {
		line = bytes.TrimPrefix(bytes.TrimSpace(line), []byte("data: "))
		if bytes.HasPrefix(line, []byte("{")) {
			m = mcpMessage{}
			if err := json.Unmarshal(line, &m); err != nil {
				return m, nil, fmt.Errorf("%s: %w: %s", what, err, excerptOf(line))
			}
		}
	}
	if m.Error != nil {
		return m, nil, fmt.Errorf("%s: %+v", what, *m.Error)
	}
	if strings.Contains(body, `"id":`) {
		maps.Copy(c.acked, c.shown)
		clear(c.shown)
	}
	return m, a.header, c.readNotices(m)
}

var noticeLine = regexp.MustCompile(`(?m)^\[(bg_[a-z2-7]{26})\] `)

// readNotices takes the notices that come with a result: none comes twice.
func (c *loadClient) readNotices(m mcpMessage) error {
	for _, block := range m.Result.Content {
		if !strings.HasPrefix(block.Text, "<background-results>") {
			continue
		}
		for _, found := range noticeLine.FindAllStringSubmatch(block.Text, -1) {
			if c.acked[found[1]] {
				return fmt.Errorf("the notice of %s was taken, and comes again", found[1])
			}
			c.shown[found[1]] = true
		}
	}
	return nil
}

// ask makes a request that stands for itself, of a client that takes tasks. name
// is the tool's or the task's.
func (c *loadClient) ask(ctx context.Context, what, method, name, params string) (mcpMessage, error) {
	c.calls++
	const meta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"_meta":%s,%s}}`, c.calls, method, meta, params)
	m, _, err := c.mcp(ctx, what, body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name)
	return m, err
}

func (c *loadClient) mcpTool(ctx context.Context, what, tool, args string) (mcpMessage, error) {
	return c.ask(ctx, what, "tools/call", tool, fmt.Sprintf(`"name":%q,"arguments":%s`, tool, args))
}

func (c *loadClient) mcpCall(ctx context.Context) error {
	args := c.args("hello")
	m, err := c.mcpTool(ctx, "MCP call", loadEcho, args)
	if err != nil {
		return err
	}
	return expect(!m.Result.IsError && sameJSON(json.RawMessage(m.text()), args), "%+v", m)
}

// mcpTask makes a call that becomes a task, and waits for its end or cancels it.
func (c *loadClient) mcpTask(ctx context.Context) error {
	r := &loadRun{tool: loadTardy, args: c.args(""), taken: true}
	m, err := c.mcpTool(ctx, "MCP call, long", r.tool, r.args)
	if err != nil {
		return err
	}
	if m.Result.TaskID == "" { // there was no place for it, and it was waited for
		return expect(sameJSON(json.RawMessage(m.text()), r.args), "%+v", m)
	}
	r.id = m.Result.TaskID
	c.told(r)
	task := fmt.Sprintf(`"taskId":%q`, r.id)
	if c.rng.IntN(2) == 0 {
		r.stopped = true
		if _, err := c.ask(ctx, "MCP cancel", "tasks/cancel", r.id, task); err != nil {
			return err
		}
	}
	for m.Result.Status == "working" || m.Result.Status == "" {
		if m, err = c.ask(ctx, "MCP task", "tasks/get", r.id, task); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	if m.Result.Status == "cancelled" && r.stopped {
		return nil
	}
	return expect(m.Result.Status == "completed" && m.Result.Result != nil && len(m.Result.Result.Content) > 0 &&
		sameJSON(json.RawMessage(m.Result.Result.Content[0].Text), r.args), "%+v", m)
}

// mcpSpawn spawns and looks as an agent does.
func (c *loadClient) mcpSpawn(ctx context.Context) error {
	r := &loadRun{tool: loadQuick, args: c.args(""), taken: true, watched: c.watched != nil}
	m, err := c.mcpTool(ctx, "MCP spawn", "spawn_background", fmt.Sprintf(`{"tool":%q,"args":%s}`, r.tool, r.args))
	if err != nil {
		return err
	}
	if m.Result.IsError {
		c.figures.refuse("MCP spawn")
		return expect(strings.Contains(m.text(), "maximum of"), "no run was spawned, and no limit is named: %s", m.text())
	}
	var spawned struct {
		TaskID string `json:"task_id"`
	}
	if err := json.Unmarshal([]byte(m.text()), &spawned); err != nil || spawned.TaskID == "" {
		return fmt.Errorf("spawned: %s", m.text())
	}
	r.id = spawned.TaskID
	c.told(r)
	m, err = c.mcpTool(ctx, "MCP check", "check_background", fmt.Sprintf(`{"task_id":%q,"wait_seconds":1}`, r.id))
	if err != nil {
		return err
	}
	return expect(!m.Result.IsError && strings.Contains(m.text(), r.id), "checked: %s", m.text())
}

// mcpSession is a session that begins with initialize, makes some calls and
// ends.
func (c *loadClient) mcpSession(ctx context.Context) error {
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}`
	m, header, err := c.mcp(ctx, "MCP initialize", initialize)
	if err != nil {
		return err
	}
	session := []string{"Mcp-Session-Id", header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", m.Result.ProtocolVersion}
	if err := expect(session[1] != "" && session[3] != "", "initialized: %+v %v", m, header); err != nil {
		return err
	}
	if _, _, err = c.mcp(ctx, "MCP initialized", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session...); err != nil {
		return err
	}
	if m, _, err = c.mcp(ctx, "MCP tools", `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, session...); err != nil {
		return err
	}
	if err := expect(len(m.Result.Tools) == len(loadTools)+3, "%d tools", len(m.Result.Tools)); err != nil {
		return err
	}
	for range c.rng.IntN(4) {
		args := c.args("hello")
		m, _, err := c.mcp(ctx, "MCP legacy call", fmt.Sprintf(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, loadEcho, args), session...)
		if err != nil {
			return err
		}
		if err := expect(sameJSON(json.RawMessage(m.text()), args), "%+v", m); err != nil {
			return err
		}
	}
	_, err = c.do(ctx, "MCP end", "DELETE", "/mcp", nil, nil, []int{http.StatusOK, http.StatusNoContent}, session...)
	return err
}
