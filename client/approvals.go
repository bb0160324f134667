package client

import (
	"context"
	"iter"
	"net/url"

	"github.com/toolhost/toolhost/server/wire"
)

// Approvals gives access to the calls that wait for a person's approval, and to kept
// approvals. Only the operator may use it.
type Approvals struct{ client *Client }

// Approvals returns the approvals of the server.
func (c *Client) Approvals() Approvals { return Approvals{c} }

// Waiting returns the waiting calls, oldest first.
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

// Get returns a waiting call with its complete arguments.
func (a Approvals) Get(ctx context.Context, id string) (wire.WaitingCall, error) {
	return do[wire.WaitingCall](ctx, a.client, "GET", "/v1/approvals/"+url.PathEscape(id), nil)
}

// Events yields an event when a call in any session begins to wait, see [wire.EventHeld],
// and another with the outcome: [wire.EventQueued] if it was approved, [wire.EventEnded] if
// it was refused, withdrawn, or not decided in time. The last element is the error that
// ended the stream, as in [Client.Events].
func (a Approvals) Events(ctx context.Context) iter.Seq2[wire.Event, error] {
	return a.client.events(ctx, "/v1/events?approvals=true")
}

// Decide approves or refuses a waiting call. Over TCP it needs [Options].ApprovalToken.
func (a Approvals) Decide(ctx context.Context, id string, in wire.Decide) (wire.Run, error) {
	return do[wire.Run](ctx, a.client, "POST", "/v1/approvals/"+url.PathEscape(id), in, wire.ApprovalHeader, a.client.approval)
}

// Kept returns the kept approvals, sorted by session and tool.
func (a Approvals) Kept(ctx context.Context) ([]wire.KeptApproval, error) {
	out, err := do[wire.KeptApprovals](ctx, a.client, "GET", "/v1/kept_approvals", nil)
	return out.Kept, err
}

// Revoke removes the kept approval of a tool in a session; with "" as the session, the one
// that holds for all sessions. It is not an error if there is none.
func (a Approvals) Revoke(ctx context.Context, session, tool string) error {
	query := url.Values{}
	set(query, "of_session", session)
	path := withQuery("/v1/kept_approvals/"+url.PathEscape(tool), query)
	return a.client.Do(ctx, "DELETE", path, nil, nil, wire.ApprovalHeader, a.client.approval)
}
