package approval

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/dryrun"
	"github.com/toolhost/toolhost/server/wire"
)

// keptLife is how long an approval for a session is kept.
const keptLife = 24 * time.Hour

// keptApproval is the stored approval for later calls to a tool.
type keptApproval struct {
	Tool        string    `json:"tool"`
	Caller      string    `json:"caller,omitempty"`    // the tool that made the approved call
	Arguments   string    `json:"arguments,omitempty"` // digest of the approved arguments; empty approves any
	Fingerprint string    `json:"fingerprint"`
	By          string    `json:"by"`
	Until       time.Time `json:"until,omitzero"`
	Process     string    `json:"process,omitempty"` // the only process for which it holds; empty means all
}

// scope returns the kept approvals of a session; with "" as the session, those for all
// sessions.
func (c *Checker) scope(session string) background.Values {
	return background.ValuesIn(c.Engine, engine.Scope{Session: session, Name: "approvals"}, engine.ValueLimit{Count: 1000, Bytes: 1 << 20}, 4<<10)
}

// key returns the key of the approval in its scope.
func (k keptApproval) key() string {
	sum := sha256.Sum256([]byte(k.Tool + "\x00" + k.Caller + "\x00" + k.Arguments))
	return hex.EncodeToString(sum[:])
}

// keep keeps the approval of a held run for as long as the decision says.
func (c *Checker) keep(ctx context.Context, tool *catalog.Tool, run engine.Run, keep wire.Keep, by string, connected bool) error {
	k := keptApproval{Tool: tool.Name, Caller: callerOf(run), Fingerprint: fingerprint(tool), By: by}
	session := run.Session
	switch keep {
	case wire.KeepAlways:
		session = ""
	case wire.KeepArguments:
		args, err := c.Engine.Payload(ctx, run.ID, engine.PartArgs)
		if err != nil {
			return err
		}
		k.Arguments = digestOf(args)
	}
	if session != "" {
		k.Until = time.Now().Add(keptLife)
		if connected {
			k.Process = c.Process
		}
	}

	data, err := json.Marshal(k)
	if err == nil {
		_, err = c.scope(session).SetUntil(ctx, k.key(), data, engine.AnyVersion, k.Until)
	}
	return err
}

// covers reports whether a kept approval covers a call: the same code with the same grants,
// called by the same tool or by the agent, and with the same arguments if only those were
// approved.
func (c *Checker) covers(ctx context.Context, tool *catalog.Tool, call Call) bool {
	digests := []string{"", digestOf(call.Args)}
	for _, session := range []string{"", call.Session} {
		for _, arguments := range digests {
			k := keptApproval{Tool: tool.Name, Caller: call.Caller, Arguments: arguments}
			v, err := c.scope(session).Get(ctx, k.key())
			if err == nil && json.Unmarshal(v.Data, &k) == nil && c.inForce(tool, k) {
				return true
			}
		}
	}
	return false
}

// inForce reports whether a kept approval still holds.
func (c *Checker) inForce(tool *catalog.Tool, k keptApproval) bool {
	return k.Fingerprint != "" && k.Fingerprint == fingerprint(tool) && (k.Process == "" || k.Process == c.Process) && (k.Until.IsZero() || time.Now().Before(k.Until))
}

// Kept returns the kept approvals, sorted by session and tool.
func (c *Checker) Kept(ctx context.Context) (wire.KeptApprovals, error) {
	out := wire.KeptApprovals{Kept: []wire.KeptApproval{}}
	err := c.eachKept(ctx, func(scope engine.Scope, _ string, at time.Time, k keptApproval) error {
		one := wire.KeptApproval{Tool: k.Tool, Caller: k.Caller, ArgsDigest: k.Arguments, Session: scope.Session, By: k.By, At: at, ExpiresAt: k.Until}
		if tool, err := c.Lookup(k.Tool); err == nil {
			one.InForce = c.inForce(tool, k)
		}
		out.Kept = append(out.Kept, one)
		return nil
	})
	slices.SortStableFunc(out.Kept, func(a, b wire.KeptApproval) int {
		return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Tool, b.Tool), a.At.Compare(b.At))
	})
	return out, err
}

// eachKept calls f with each kept approval and its key.
func (c *Checker) eachKept(ctx context.Context, f func(scope engine.Scope, key string, at time.Time, k keptApproval) error) error {
	scopes, err := c.Engine.Scopes(ctx, "", "approvals")
	if err != nil {
		return err
	}
	for _, scope := range scopes {
		values, err := c.Engine.Values(ctx, scope.Scope, "", 0, true)
		if err != nil {
			return err
		}
		for _, v := range values {
			var k keptApproval
			if json.Unmarshal(v.Data, &k) != nil {
				continue
			}
			if err := f(scope.Scope, v.Key, v.At, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// Revoke removes the kept approvals of a tool in a session; with "" as the session, those
// for all sessions. It reports whether there were any. A dry run removes none.
func (c *Checker) Revoke(ctx context.Context, session, tool string) (found bool, err error) {
	err = c.eachKept(ctx, func(scope engine.Scope, key string, _ time.Time, k keptApproval) error {
		if scope.Session != session || k.Tool != tool {
			return nil
		}
		if found = true; dryrun.In(ctx) {
			return nil
		}
		_, err := c.scope(session).Delete(ctx, key, engine.AnyVersion)
		return err
	})
	if found && err == nil && !dryrun.In(ctx) {
		c.Audit.Admin("approval revoked", session, tool)
	}
	return found, err
}
