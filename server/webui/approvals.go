package webui

import (
	"errors"
	"net/http"

	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

// maxApprovals is how many waiting calls a page shows.
const maxApprovals = 100

// approvalList is the content of the page of approvals.
type approvalList struct {
	Waiting []wire.WaitingCall
	More    int    // calls on later pages
	Next    string // last call of this page, if another page follows
	Kept    []wire.KeptApproval
	Decides bool // decisions are possible here
}

// approvals shows the waiting calls, oldest first, and the kept approvals.
func (s *site) approvals(r *http.Request) (page, error) {
	all := s.service.Approvals()
	waiting, err := all.List(r.Context(), r.FormValue("after"), maxApprovals)
	if err != nil {
		return page{}, err
	}
	kept, err := all.Kept(r.Context())
	if err != nil {
		return page{}, err
	}

	v := approvalList{waiting.Approvals, waiting.Waiting - len(waiting.Approvals), waiting.Next, kept.Kept, s.Approvals.Set()}
	return page{title: "Approvals", menu: "/ui/approvals", sections: []section{{"approvals", v}, {"kept", v}}}, nil
}

// postDecision is like post, but for a form with the approval token. It returns to the
// page.
//
// Someone who can post a form may still only be allowed to call tools: an agent may have
// the operator's token. So decisions need a separate token, which is typed each time.
func (s *site) postDecision(pattern string, act func(r *http.Request) error) {
	s.post(pattern, maxForm, func(r *http.Request) (to string, err error) {
		if err := s.Approvals.Check(r.PostForm.Get("token")); err != nil {
			s.Logger.Warn("a decision on an approval was refused", "path", r.URL.Path, "error", err)
			if errors.Is(err, identity.ErrTooManyGuesses) {
				return "", refuse(http.StatusTooManyRequests, "There were too many wrong tokens for approvals: try again in a minute. toolhost approve decides without it")
			}
			if errors.Is(err, identity.ErrNoApprovalToken) {
				return "", refuse(http.StatusForbidden, "Decisions on this page are disabled: set approvals.token, or use toolhost approve")
			}
			return "", refuse(http.StatusForbidden, "That is not the token for approvals. toolhost approve decides without it")
		}
		return "/ui/approvals", act(r)
	})
}

// decide approves or refuses a call as it was shown.
func (s *site) decide(r *http.Request) error {
	in := wire.Decide{Fingerprint: r.PostForm.Get("fingerprint"), Reason: r.PostForm.Get("reason")}
	switch r.PostForm.Get("decision") {
	case "refuse":
	case "approve":
		in.Approve = true
	case "session":
		in.Approve, in.Keep = true, wire.KeepSession
	case "arguments":
		in.Approve, in.Keep = true, wire.KeepArguments
	case "always":
		in.Approve, in.Keep = true, wire.KeepAlways
	default:
		return refuse(http.StatusUnprocessableEntity, "Choose whether the call is approved")
	}

	run, err := s.service.Approvals().Decide(r.Context(), r.PathValue("run"), operator, in)
	if err == nil {
		s.Logger.Info("an approval was decided by an operator", "task_id", run.TaskID, "session", run.Session, "approved", in.Approve, "keep", in.Keep)
	}
	return err
}

// revoke revokes a kept approval.
func (s *site) revoke(r *http.Request) error {
	session, tool := r.PostForm.Get("session"), r.PathValue("tool")
	revoked, err := s.service.Approvals().Revoke(r.Context(), session, tool)
	if revoked {
		s.Logger.Info("a kept approval was revoked by an operator", "tool", tool, "session", session)
	}
	return err
}

// Count returns the number of waiting calls.
func (v approvalList) Count() int { return len(v.Waiting) + v.More }
