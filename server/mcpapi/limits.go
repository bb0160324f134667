package mcpapi

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server/wire"
)

// limitsURI is the URI of the resource that lists the limits of calls.
const limitsURI = "toolhost://limits"

// limitsResource is the content of this resource.
type limitsResource struct {
	Usual wire.ToolLimits            `json:"usual"`
	Tools map[string]wire.ToolLimits `json:"tools,omitempty"` // tools whose limits differ from the usual ones
}

func (a *api) addLimits(srv *mcp.Server) {
	srv.AddResource(&mcp.Resource{
		Name: "limits", Title: "Limits of calls", URI: limitsURI, MIMEType: "application/json",
		Description: "what a call may use: time, memory, output, arguments",
	}, a.readLimits)
}

// readLimits answers with the usual limits, and those of the tools that differ.
func (a *api) readLimits(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	out := limitsResource{Usual: a.service.UsualLimits(), Tools: map[string]wire.ToolLimits{}}
	for _, d := range a.service.AllDefinitions(originOf(req.Extra).Session) {
		usual := out.Usual
		if !d.SupportsBackground {
			usual.BackgroundSeconds = 0
		}
		if d.Unsandboxed {
			usual.MemoryBytes = 0
		}
		if d.Limits != (wire.ToolLimits{}) && d.Limits != usual {
			out.Tools[d.Name] = d.Limits
		}
	}

	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: limitsURI, MIMEType: "application/json", Text: string(text)}}}, nil
}
