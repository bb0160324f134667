package background

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// What ids begin with.
const (
	runPrefix      = "bg_"
	schedulePrefix = "sc_"
)

// The forms of ids, as regular expressions: a prefix, and 128 bits as 26
// lower-case base32 characters (RFC 4648, no padding).
const (
	RunIDForm      = "^" + runPrefix + "[a-z2-7]{26}$"
	ScheduleIDForm = "^" + schedulePrefix + "[a-z2-7]{26}$"
)

var (
	runIDForm      = regexp.MustCompile(RunIDForm)
	scheduleIDForm = regexp.MustCompile(ScheduleIDForm)
)

// IsRunID reports whether a text has the form of the id of a run. Nothing else
// needs to be looked for.
func IsRunID(id string) bool { return runIDForm.MatchString(id) }

// IsScheduleID reports whether a text has the form of the id of a schedule.
func IsScheduleID(id string) bool { return scheduleIDForm.MatchString(id) }

// newID returns a fresh run id, of a version 4 UUID (RFC 9562).
func newID() (string, error) {
	u, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("making a run id: %w", err)
	}
	return runPrefix + encodeID(u[:]), nil
}

// digest returns 128 bits of the SHA-256 of text, as ids have them.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return encodeID(sum[:16])
}

func encodeID(bits []byte) string {
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(bits))
}
