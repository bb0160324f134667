// Package fair divides limited resources among the clients of a server, so that no
// client can take all of them. A Semaphore makes clients wait for a slot, a Pool
// refuses them once it is exhausted, and Victim chooses which holding to evict.
//
// A client is any string key.
package fair

import (
	"iter"
	"strings"
	"time"
)

// PerClient returns how many of n shared slots one client can hold: three quarters of
// them, but at least one.
func PerClient(n int) int { return max(1, n*3/4) }

// ClientOf returns the key of the client that a session belongs to. The sessions of a
// user, which are named USER/NAME, all belong to one client. Any other session is a
// client by itself.
func ClientOf(session string) string {
	if user, _, ok := strings.Cut(session, "/"); ok {
		return user + "/"
	}
	return session
}

// Holding is one unit that a client holds, and that can be evicted.
type Holding struct {
	Key   string
	Busy  bool      // whether it cannot be evicted now
	Since time.Time // time when it was last busy
}

// Victim returns the holding to evict in favor of the client newcomer. Of the client
// that holds the most, it picks the holding that has been idle longest. It never
// picks from another client that holds no more than newcomer does. It reports false
// if nothing can be evicted.
func Victim[T any](all iter.Seq[T], of func(T) Holding, newcomer string) (victim T, ok bool) {
	held := map[string]int{}
	for v := range all {
		held[of(v).Key]++
	}

	var best Holding
	for v := range all {
		h := of(v)
		if h.Busy || h.Key != newcomer && held[h.Key] <= held[newcomer] {
			continue
		}
		more := held[h.Key] - held[best.Key]
		if !ok || more > 0 || more == 0 && h.Since.Before(best.Since) {
			victim, best, ok = v, h, true
		}
	}
	return victim, ok
}
