package background

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// byParent is the By of a cancellation that a child gets because of its parent.
const byParent = "parent"

// workKey is the context key of the *workOf of a task.
type workKey struct{}

type workOf struct {
	core      *core
	task      *task
	member    *member
	admission *admission
}

// MayAct returns an error if the run whose work ctx belongs to must have no further
// effects: its context has ended, or by this process's clock another worker may have
// taken the run over. The context alone may end too late, for example after the machine
// was suspended. Call MayAct just before anything with an effect outside the process.
func MayAct(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w != nil && w.task.live.Load() && w.member.over(w.task.worker) {
		return engine.ErrFenced
	}
	return nil
}

// RunOf returns the run that ctx belongs to: the run whose [Executor] got ctx, or a
// context that ctx derives from. A foreground call has no run.
func RunOf(ctx context.Context) (engine.Run, bool) {
	w, _ := ctx.Value(workKey{}).(*workOf)
	if w == nil || !w.task.live.Load() {
		return engine.Run{}, false
	}
	return w.task.lease.Run().Light(), true
}

// link makes run a child of the run with the id parent, or, if parent is "", of the run
// whose work ctx belongs to, if any. That parent may still end before the run is
// stored.
func (r *reader) link(ctx context.Context, run *engine.Run, parent string) error {
	if parent == "" {
		above, ok := RunOf(ctx)
		if !ok || above.Session != run.Session || r.runs.get(above.ID) == nil { // in the last case, a run of another Manager
			return nil
		}
		parent = above.ID
	}

	h, err := r.lookup(ctx, run.Session, parent)
	switch {
	case err != nil:
		return err
	case h.run.Status.Terminal() || h.run.Cancel != nil:
		return unlinked(engine.ErrParent)
	case h.run.Depth >= MaxDepth:
		return &engine.LimitError{Err: ErrDepthLimit, Max: MaxDepth}
	}
	run.Parent, run.Depth = parent, h.run.Depth+1
	return nil
}

// unlinked turns err into a [FieldError], if it is about the parent.
func unlinked(err error) error {
	if errors.Is(err, engine.ErrParent) {
		return &FieldError{"parent", "it has ended or is being stopped: only an active run can have new children"}
	}
	return err
}

// stopFamily asks a run and all active runs below it to end, without waiting for
// them. It returns the runs that it asked. It does not stop when ctx ends.
func (w *worker) stopFamily(ctx context.Context, h handle, req StopRequest) (asked []handle, err error) {
	ctx = context.WithoutCancel(ctx)
	id, session := h.run.ID, h.run.Session
	if !h.run.Status.Terminal() {
		if h, err = w.stop(ctx, id, req); err != nil {
			return nil, err
		}
		asked = append(asked, h)
	}
	if req.Alone {
		return asked, nil
	}

	children, err := w.engine.List(ctx, engine.Query{Session: session, Parent: id, Active: true}) // no new ones can appear
	if err != nil {
		return asked, fmt.Errorf("listing the children of run %s: %w", id, err)
	}
	var errs []error
	for _, child := range children {
		below, err := w.stopFamily(ctx, handle{run: child}, StopRequest{Force: req.Force, By: byParent, Reason: stoppedWith(id, req.Reason)})
		asked = append(asked, below...)
		if !errors.Is(err, engine.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return asked, errors.Join(errs...)
}

// stoppedWith returns the reason for stopping a child.
func stoppedWith(parent, reason string) string {
	text := "its parent " + parent + " was stopped"
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// stopOrphan cancels a run of a dead worker if its parent was stopped: that worker may have
// died before it stopped the child. It also cancels a run that has not started, although
// the parent that began it together with a state has ended, so that nobody waits for it;
// and a released run whose arguments only its caller has. It reports whether it canceled
// the run.
func (w *worker) stopOrphan(ctx context.Context, run engine.Run) (stopped bool, err error) {
	if run.Secret && run.Origin == engine.OriginParked && run.Attempt == 0 && run.Cancel == nil {
		c := engine.Cancellation{At: time.Now(), By: "host", Reason: "some of its arguments are secrets, which are not stored: only its caller can make the call"}
		_, err = w.engine.Cancel(ctx, run.ID, c, canceled(c.At))
		return err == nil, err
	}
	if run.Parent == "" || run.Cancel != nil {
		return false, nil
	}
	parent, err := w.engine.Get(ctx, run.Parent)
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	var c engine.Cancellation
	switch {
	case parent.Cancel != nil && !parent.Cancel.Alone:
		c = *parent.Cancel
		c.By, c.Reason = byParent, stoppedWith(parent.ID, c.Reason)
	case parent.Status.Terminal() && isOperation(run) && run.Attempt == 0:
		c = engine.Cancellation{At: time.Now(), By: byParent, Reason: "its parent " + parent.ID + " has ended, and does not wait for it any more"}
	default:
		return false, nil
	}
	_, err = w.engine.Cancel(ctx, run.ID, c, canceled(c.At))
	return err == nil, err
}
