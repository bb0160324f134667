package httpapi

import (
	"errors"

	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/wire"
)

func listApprovals(r *request, _ none) (wire.Approvals, error) {
	return r.api.service.Approvals().List(r.Context(), r.get("after"), r.number("limit", defaultPage))
}

func getApproval(r *request, _ none) (wire.WaitingCall, error) {
	return r.api.service.Approvals().Get(r.Context(), r.PathValue("run"))
}

// decideBody is a [wire.Decide] that has to say what it decides: without that, an empty
// body would refuse a call for good.
type decideBody struct {
	wire.Decide
	Approve *bool `json:"approve"`
}

func decideApproval(r *request, in decideBody) (wire.Run, error) {
	if err := r.mayApprove(); err != nil {
		return wire.Run{}, err
	}
	if in.Approve == nil {
		return wire.Run{}, invalid("approve", "required: true approves the call, false refuses it")
	}
	if !*in.Approve && in.Keep != "" {
		return wire.Run{}, invalid("keep", "only an approval can be kept, not a refusal")
	}
	in.Decide.Approve = *in.Approve
	return r.api.service.Approvals().Decide(r.Context(), r.PathValue("run"), "operator", in.Decide)
}

func listKeptApprovals(r *request, _ none) (wire.KeptApprovals, error) {
	return r.api.service.Approvals().Kept(r.Context())
}

func revokeApproval(r *request, _ none) (none, error) {
	if err := r.mayApprove(); err != nil {
		return none{}, err
	}
	_, err := r.api.service.Approvals().Revoke(r.Context(), r.get("of_session"), r.PathValue("tool"))
	return none{}, err
}

// mayApprove refuses decisions of clients that may only call tools. Over TCP, a decision
// needs a separate token.
func (r *request) mayApprove() error {
	if overSocket(r.Request) {
		return nil
	}
	err := r.api.approvals.Check(r.Header.Get(wire.ApprovalHeader))
	if err != nil && !errors.Is(err, identity.ErrTooManyGuesses) {
		r.api.log.Warn("a decision on an approval was refused", "path", r.URL.Path, "error", err)
	}
	switch {
	case errors.Is(err, identity.ErrNoApprovalToken):
		return refuse(wire.CodeForbidden, "decisions on approvals over TCP are disabled: use the server's socket, as toolhost approve does, or set approvals.token")
	case errors.Is(err, identity.ErrTooManyGuesses):
		return refuse(wire.CodeLimit, "%v", err)
	case err != nil:
		return refuse(wire.CodeForbidden, "invalid token in %s: send the value of approvals.token", wire.ApprovalHeader)
	}
	return nil
}
