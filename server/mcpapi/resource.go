package mcpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	maxInline   = 256 << 10        // largest value, in bytes, that content repeats in full if the result has it elsewhere too; of a larger one, content shows the beginning
	previewSize = server.MinAnswer // bytes shown of a large value
	maxPiece    = 512 << 10        // most bytes of a resource that one read returns
)

// filesTemplate is the URI of the files of runs. The offset is in bytes.
const filesTemplate = "toolhost://runs/{task_id}/{file}{?offset}"

// nextKey is the URI of the next piece of a resource, in the _meta of its contents.
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
	if name == wire.ResultJSON {
		mime = "application/json"
	}
	return &mcp.ResourceLink{URI: fileURI(id, name, 0), Name: name, MIMEType: mime}
}

// abridge replaces the first content block of a success, which is the value of a run, with the
// beginning of the value and a link to all of it.
func abridge(out *mcp.CallToolResult, id string, value json.RawMessage) {
	text := fmt.Sprintf("%s\nAll of it is in the resource %s.", beginningOf(value), fileURI(id, wire.ResultJSON, 0))
	out.Content = slices.Replace(out.Content, 0, 1, mcp.Content(&mcp.TextContent{Text: text}), mcp.Content(fileLink(id, wire.ResultJSON)))
}

// beginningOf shows the beginning of a large value.
func beginningOf(value json.RawMessage) string {
	return fmt.Sprintf("The result has %d bytes. It begins:\n%s", len(value), strings.ToValidUTF8(string(value[:previewSize]), ""))
}

// addLinks adds links to a result of check_background or stop_background, one for each
// file that it names: paths are useful only on the host.
func addLinks(tool string, r abi.Result, out *mcp.CallToolResult) {
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
			out.Content = append(out.Content, fileLink(t.ID, wire.OutputLog))
		}
		if t.ID != "" && t.Result != "" {
			out.Content = append(out.Content, fileLink(t.ID, wire.ResultJSON))
		}
	}
}

func (a *api) addFiles(srv *mcp.Server) {
	srv.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "run files", Title: "Files of background runs", URITemplate: filesTemplate,
		Description: "output.log and result.json of a background run; a large file comes in pieces, and each names the next",
	}, a.readFile)
}

// readFile answers resources/read with one piece of a file of the caller's runs.
func (a *api) readFile(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	id, name, offset, ok := parseFileURI(req.Params.URI)
	if !ok {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	piece, size, err := a.readPiece(ctx, originOf(req.Extra).Session, id, name, offset)
	if server.ReasonOf(err).Code == wire.CodeNotFound {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	if err != nil {
		a.log.Error("cannot read a file of a run", "task_id", id, "file", name, "error", err)
		return nil, hostError(err)
	}

	contents := &mcp.ResourceContents{URI: req.Params.URI, MIMEType: fileLink(id, name).MIMEType}
	if offset+int64(len(piece)) < size {
		piece = piece[:len(piece)-server.PartialRune(piece)]
		contents.Meta = mcp.Meta{nextKey: fileURI(id, name, offset+int64(len(piece)))}
	}
	if utf8.Valid(piece) {
		contents.Text = string(piece)
	} else {
		contents.MIMEType, contents.Blob = "application/octet-stream", piece
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}}, nil
}

// parseFileURI parses the URI of a file of a run.
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
	return id, name, offset, ok && (name == wire.OutputLog || name == wire.ResultJSON)
}

// readPiece reads a piece of a file, and returns the size of the whole file. A run has
// files once it has ended.
func (a *api) readPiece(ctx context.Context, session, id, name string, offset int64) (piece []byte, size int64, err error) {
	file, err := a.service.Session(session).Open(ctx, id, name)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()

	if size, err = file.Seek(0, io.SeekEnd); err != nil {
		return nil, 0, err
	}
	piece = make([]byte, min(maxPiece, max(0, size-offset)))
	_, err = io.ReadFull(io.NewSectionReader(file, offset, maxPiece), piece)
	return piece, size, err
}
