// Package fair divides what a server has a limited number of among its clients,
// so that none of them can take all of it: a Semaphore for what clients wait for,
// a Pool for what is refused instead, and Victim for what can be taken back.
//
// A client is named by a key. What a key stands for is the caller's business.
package fair

import (
	"iter"
	"strings"
	"time"
)

// PerClient is how many of n slots one client can hold where others are expected:
// three quarters, and at least one.
func PerClient(n int) int { return max(1, n*3/4) }

// ClientOf returns the key of the client that a session counts for. The sessions
// USER/NAME of one USER are one client. Any other session is a client by itself.
func ClientOf(session string) string {
	if user, _, ok := strings.Cut(session, "/"); ok {
		return user + "/"
	}
	return session
}

// Holding is what a client holds that could be taken back.
type Holding struct {
	Key   string
	Busy  bool      // it cannot be taken back now
	Since time.Time // when it was last busy
}

// Victim returns which of all holdings to evict for a newcomer with a key: one of
// the client that holds the most, and of these the one that was busy the longest
// time ago. Another client loses nothing to a newcomer that holds as many or more.
// It reports false if nothing can be evicted.
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
