package answer

import (
	"strconv"
	"strings"
)

// Progress is a tool's report on its progress and status. It holds the latest value of
// each field.
type Progress struct {
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"`   // final value of Done; negative if unknown
	Message string  `json:"message,omitempty"` // message about the current step
	Unit    string  `json:"unit,omitempty"`    // unit of Done and Total, such as "files"
	Status  string  `json:"status,omitempty"`  // current activity of the tool
	// Narration is the status text from the tool's manifest, written for a person.
	// The caller of the host sets it.
	Narration string `json:"narration,omitempty"`
}

// Counted reports whether p contains a progress report: a count, a total or a message.
func (p Progress) Counted() bool { return p.Done > 0 || p.Total > 0 || p.Message != "" }

// String describes in one line what the tool is doing: its status, the counts if they
// have a unit, and the message, or else the narration.
func (p Progress) String() string {
	var parts []string
	for _, part := range []string{p.Status, p.amount(), p.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return p.Narration
	}
	return strings.Join(parts, ": ")
}

// amount formats the counts with their unit, such as "3 of 10 files". The text is empty
// without a unit.
func (p Progress) amount() string {
	if p.Unit == "" || !p.Counted() {
		return ""
	}
	text := number(p.Done)
	if p.Total > 0 {
		text += " of " + number(p.Total)
	}
	return text + " " + p.Unit
}

// number formats a count. Large ones get neither a fraction nor an exponent.
func number(n float64) string {
	if n >= 1e5 && n < 1e15 {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strconv.FormatFloat(n, 'g', 6, 64)
}
