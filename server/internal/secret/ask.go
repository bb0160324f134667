package secret

import (
	"context"
	"errors"

	"github.com/toolhost/toolhost/abi"
)

// maxAsked bounds the secrets that one call may ask its user for.
const maxAsked = 4

// ErrNotConnected means that the user did not set a secret that a call needs.
var ErrNotConnected = errors.New("the user did not set the secret")

// An Asker asks the user of one call for the secrets that the call lacks: once for each, and
// for at most four secrets.
type Asker struct {
	store *Store
	call  Call
	ask   func(ctx context.Context, need Need) error
	asked map[string]bool
}

// Asker returns the Asker of a call. The function ask has to ask the user, and wait until the
// secret is set.
func (s *Store) Asker(c Call, ask func(ctx context.Context, need Need) error) *Asker {
	return &Asker{s, c, ask, map[string]bool{}}
}

// Ask asks for the secret that a call lacked, according to its result. It reports whether the
// secret has a value now, so that the call can start over. The error comes from the function
// that asks, or from ctx.
func (a *Asker) Ask(ctx context.Context, r abi.Result) (again bool, err error) {
	need, ok := a.store.lacked(ctx, a.call, r)
	if !ok || a.asked[need.Name] || len(a.asked) == maxAsked {
		return false, nil
	}
	url := a.store.pending.url(need) // that of the result may be the plugin's
	if url == "" {
		return false, nil
	}
	a.asked[need.Name] = true

	set, stop := a.store.pending.watch(need.User, need.Name)
	defer stop()
	if _, err := a.store.User(need.User).Secret(ctx, need.Name); err == nil { // it was set meanwhile
		return true, nil
	}
	if err = a.ask(ctx, Need{Name: need.Name, Hosts: need.Hosts, URL: url, Set: set}); err == nil {
		err = ctx.Err()
	}
	return err == nil, err
}
