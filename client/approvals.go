package client

import (
	"context"
	"iter"
	"net/url"

	"github.com/toolhost/toolhost/server/wire"
)

// Approvals are the calls that wait until a person has approved them, and the approvals
// that are kept. They are for the operator.
type Approvals struct{ client *Client }

// Approvals returns the approvals.
func (c *Client) Approvals() Approvals { return Approvals{c} }

// Waiting returns the calls that wait, the oldest first.
func (a Approvals) Waiting(ctx context.Context) (all []wire.WaitingCall, err error) {
	query := url.Values{"limit": {"200"}}
	for {
		page, err := do[wire.Approvals](ctx, a.client, "GET", "/v1/approvals?"+query.Encode(), nil)
		if all = append(all, page.Approvals...); err != nil || page.Next == "" {
			return all, err
		}
		query.Set("after", page.Next)
	}
}

// Get returns a call that waits, with all its arguments.
func (a Approvals) Get(ctx context.Context, id string) (wire.WaitingCall, error) {
	return do[wire.WaitingCall](ctx, a.client, "GET", "/v1/approvals/"+url.PathEscape(id), nil)
}

// Events yields the calls of all sessions that begin to wait, and what becomes of those
// that wait, see [wire.EventHeld], until ctx is done or the stream breaks off. It is like
// [Client.Events].
func (a Approvals) Events(ctx context.Context) iter.Seq2[wire.Event, error] {
	return a.client.events(ctx, "/v1/events?approvals=true")
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
