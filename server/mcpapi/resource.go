package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
)

const (
	// maxInline is how large a value of a task may be that is told in full, in
	// bytes; of a larger one its beginning is, with a link to all of it.
	maxInline = 256 << 10
	// preview is how much is told of a value that is too large, in bytes.
	preview = 8 << 10
	// maxPiece is how much of a resource one read returns, in bytes.
	maxPiece = 512 << 10
)

// filesTemplate is where the files of runs are. The offset is in bytes.
const filesTemplate = "toolhost://runs/{task_id}/{file}{?offset}"

// nextKey, in the _meta of a resource's contents, is the URI its next piece has.
const nextKey = "toolhost/next"

func fileURI(id, name string, offset int64) string {
	uri := "toolhost://runs/" + id + "/" + name
	if offset > 0 {
		uri += "?offset=" + strconv.FormatInt(offset, 10)
	}
	return uri
}

func fileLink(id, name string) *mcp.ResourceLink {
	mime := "text/plain"
	if name == background.ResultJSON {
		mime = "application/json"
	}
	return &mcp.ResourceLink{URI: fileURI(id, name, 0), Name: name, MIMEType: mime}
}

// excerpt is told of the value of a run that is too large to be told in full.
func excerpt(run background.Run, value json.RawMessage) []mcp.Content {
	head := strings.ToValidUTF8(string(value[:preview]), "")
	text := fmt.Sprintf("The result has %d bytes. It begins:\n%s\nAll of it is in the resource %s.", len(value), head, fileURI(run.ID, background.ResultJSON, 0))
	return []mcp.Content{&mcp.TextContent{Text: text}, fileLink(run.ID, background.ResultJSON)}
}

// links adds to what the agent's own tools answered a link to each file it
// names: its paths are of use on the host only.
func links(tool string, r abi.Result, out *mcp.CallToolResult) {
	if tool != server.CheckBackground && tool != server.StopBackground || r.Kind != abi.Success {
		return
	}
	type report struct {
		ID     string `json:"task_id"`
		Log    string `json:"log_path"`
		Result string `json:"result_path"`
	}
	var answer struct {
		report
		Tasks []report `json:"tasks"`
	}
	if json.Unmarshal(r.Value, &answer) != nil {
		return
	}
	for _, t := range append(answer.Tasks, answer.report) {
		if t.ID != "" && t.Log != "" {
			out.Content = append(out.Content, fileLink(t.ID, background.OutputLog))
		}
		if t.ID != "" && t.Result != "" {
			out.Content = append(out.Content, fileLink(t.ID, background.ResultJSON))
		}
	}
}

// codeNotFound is the error of a resource that is not there in the revisions
// before 2026-07-28 (2025-11-25, server/resources, error handling).
const codeNotFound = -32002

// notFound tells clients of those that a resource is not there in their way.
func notFound(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		read, ok := req.(*mcp.ReadResourceRequest)
		problem, wrong := errors.AsType[*jsonrpc.Error](err)
		if !ok || !wrong || read.ProtocolVersion() >= modernVersion || problem.Code != jsonrpc.CodeInvalidParams || problem.Message != resourceNotFound {
			return result, err
		}
		return nil, &jsonrpc.Error{Code: codeNotFound, Message: problem.Message, Data: problem.Data}
	}
}

// resourceNotFound is what the SDK says then; the code alone says no more than
// that params are wrong.
const resourceNotFound = "Resource not found"

func (a *api) addFiles(srv *mcp.Server) {
	srv.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "run files", Title: "Files of background runs", URITemplate: filesTemplate,
		Description: "output.log and result.json of a background run; a large one comes in pieces, each of which names the next",
	}, a.readFile)
}

// readFile answers resources/read for one piece of a file of the caller's runs.
func (a *api) readFile(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	missing := mcp.ResourceNotFoundError(req.Params.URI)
	id, name, offset, ok := parseFileURI(req.Params.URI)
	if !ok {
		return nil, missing
	}
	data, end, err := a.piece(ctx, a.session(req.Extra), id, name, offset)
	switch {
	case errors.Is(err, background.ErrNotFound):
		return nil, missing
	case err != nil:
		a.log.Error("file of a run not read", "task_id", id, "file", name, "error", err)
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: abi.InternalMessage}
	}
	contents := &mcp.ResourceContents{URI: req.Params.URI, MIMEType: fileLink(id, name).MIMEType}
	if next := offset + int64(len(data)); next < end {
		data = data[:len(data)-background.PartialRune(data)]
		next = offset + int64(len(data))
		contents.Meta = mcp.Meta{nextKey: fileURI(id, name, next)}
	}
	if utf8.Valid(data) {
		contents.Text = string(data)
	} else {
		contents.MIMEType, contents.Blob = "application/octet-stream", data
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}}, nil
}

// parseFileURI reads the URI of a file of a run.
func parseFileURI(uri string) (id, name string, offset int64, ok bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "toolhost" || u.Host != "runs" {
		return "", "", 0, false
	}
	id, name, ok = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if text := u.Query().Get("offset"); text != "" {
		n, err := strconv.ParseUint(text, 10, 62)
		offset, ok = int64(n), ok && err == nil
	}
	return id, name, offset, ok && (name == background.OutputLog || name == background.ResultJSON)
}

// piece reads a piece of a file, and returns how long the file is. A file is
// there when its run has ended.
func (a *api) piece(ctx context.Context, session, id, name string, offset int64) ([]byte, int64, error) {
	file, err := a.service.OpenArtifact(ctx, session, id, name)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, err
	}
	var piece bytes.Buffer
	_, err = io.Copy(&piece, io.NewSectionReader(file, min(offset, end), maxPiece))
	return piece.Bytes(), end, err
}
