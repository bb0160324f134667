package mcpapi

import (
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server/wire"
)

// visit adds a request to the operator's list of connections until end is called.
func (a *api) visit(method string, req mcp.Request) (end func()) {
	if strings.HasPrefix(method, notifications) {
		return func() {}
	}
	if r, ok := req.(*mcp.ServerRequest[*taskParams]); ok && r.Params == nil { // the SDK would panic
		return func() {}
	}

	who := originOf(req.GetExtra())
	conn := wire.ClientConnection{Protocol: wire.ProtocolMCP, Transport: "http", User: who.User, Session: who.Session}
	if r, ok := req.(request); ok {
		conn.Revision = r.ProtocolVersion()
		describe(&conn, r.ClientInfo())
	}
	if p, ok := req.GetParams().(*mcp.InitializeParams); ok && p != nil {
		conn.Revision = min(p.ProtocolVersion, lastLegacy)
		describe(&conn, p.ClientInfo)
	}

	id := ""
	switch session, ok := req.GetSession().(*mcp.ServerSession); {
	case a.connections == nil:
		conn.Transport, id = "stdio", "stdio "+who.Session
	case ok && session.ID() != "":
		id = connectionID(session.ID())
	default:
		id = "mcp " + who.Audience() + " " + conn.Client
		if who.Unnamed {
			conn.Session = ""
		}
	}
	return a.service.Connections().Begin(id, who.Client(), conn)
}

// connectionID returns the id of a connection that began with initialize.
func connectionID(session string) string { return "mcp session " + session }

func describe(conn *wire.ClientConnection, info *mcp.Implementation) {
	if info != nil {
		conn.Client, conn.ClientVersion = info.Name, info.Version
	}
}
