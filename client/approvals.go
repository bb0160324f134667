package client

import (
	"context"
	"net/url"

	"github.com/toolhost/toolhost/server/wire"
)

// Approvals are the calls that wait until a person has approved them, and the approvals
// that are kept. They are for the operator.
type Approvals struct{ client *Client }

// Approvals returns the approvals.
func (c *Client) Approvals() Approvals { return Approvals{c} }

// Waiting returns the calls that wait, the oldest first.
func (a Approvals) Waiting(ctx context.Context) ([]wire.WaitingCall, error) {
	out, err := do[wire.Approvals](ctx, a.client, "GET", "/v1/approvals", nil)
	return out.Approvals, err
}

// Decide approves or refuses a call that waits. Over TCP it needs
// [Options].ApprovalToken.
func (a Approvals) Decide(ctx context.Context, id string, in wire.Decide) (wire.Run, error) {
	return do[wire.Run](ctx, a.client, "POST", "/v1/approvals/"+url.PathEscape(id), in, wire.ApprovalHeader, a.client.approval)
}

// Kept returns the approvals of all calls of a tool, by session and tool.
func (a Approvals) Kept(ctx context.Context) ([]wire.KeptApproval, error) {
	out, err := do[wire.KeptApprovals](ctx, a.client, "GET", "/v1/kept_approvals", nil)
	return out.Kept, err
}

// Revoke removes a kept approval, if there is one: of a session, or with "" that
// of all.
func (a Approvals) Revoke(ctx context.Context, session, tool string) error {
	query := url.Values{}
	set(query, "of_session", session)
	path := "/v1/kept_approvals/" + url.PathEscape(tool)
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return a.client.Do(ctx, "DELETE", path, nil, nil, wire.ApprovalHeader, a.client.approval)
}
