package client

import (
	"context"
	"net/url"

	"github.com/toolhost/toolhost/server/wire"
)

// Approvals returns the calls that wait until a person has approved them, the oldest
// first. It is for the operator.
func (c *Client) Approvals(ctx context.Context) ([]wire.WaitingCall, error) {
	out, err := do[wire.Approvals](ctx, c, "GET", "/v1/approvals", nil)
	return out.Approvals, err
}

// Decide approves or refuses a call that waits. Over TCP it needs
// [Options].ApprovalToken.
func (c *Client) Decide(ctx context.Context, id string, in wire.Decide) (wire.Run, error) {
	return do[wire.Run](ctx, c, "POST", "/v1/approvals/"+url.PathEscape(id), in, wire.ApprovalHeader, c.approval)
}

// KeptApprovals returns the approvals of all calls of a tool, by session and tool.
func (c *Client) KeptApprovals(ctx context.Context) ([]wire.KeptApproval, error) {
	out, err := do[wire.KeptApprovals](ctx, c, "GET", "/v1/kept_approvals", nil)
	return out.Kept, err
}

// RevokeApproval removes a kept approval, if there is one: of a session, or with "" that
// of all.
func (c *Client) RevokeApproval(ctx context.Context, session, tool string) error {
	query := url.Values{}
	set(query, "of_session", session)
	path := "/v1/kept_approvals/" + url.PathEscape(tool)
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.Do(ctx, "DELETE", path, nil, nil, wire.ApprovalHeader, c.approval)
}
