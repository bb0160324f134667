package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/toolhost/toolhost/abi"
)

// Limits of a progress report. Longer texts are cut.
const (
	maxReport  = 8 << 10 // bytes of a request
	maxStatus  = 512     // bytes
	maxUnit    = 32      // bytes
	maxSummary = 1000    // bytes
)

// reportCapability is progress and status reports. It needs no grant.
var reportCapability = Capability{
	Name: "report", Doc: "status, unit of the progress and summary",
	Missing: func(abi.Needs, Grant) []string { return nil },
	Granted: func(Grant) []string { return nil },
	ops:     map[string]operation{"report": {func(*call) bool { return true }, "", atOnce(reportOperation)}},
}

// reportOperation takes {"status", "unit", "summary"}, at least one of them.
func reportOperation(c *call, request []byte) int32 {
	if len(request) > maxReport {
		return c.refuse(abi.CallLimit, "limit", fmt.Sprintf("a report has at most %d bytes", maxReport))
	}
	var in struct{ Status, Unit, Summary *string }
	strict := json.NewDecoder(bytes.NewReader(request))
	strict.DisallowUnknownFields()
	if strict.Decode(&in) != nil || in.Status == nil && in.Unit == nil && in.Summary == nil {
		return c.refuse(abi.CallInvalid, "invalid", `expected {"status": text, "unit": text, "summary": text}, or some of them`)
	}

	if in.Summary != nil {
		c.answer.summary = oneLine(*in.Summary, maxSummary)
	}
	if in.Unit != nil {
		c.said.Unit = oneLine(*in.Unit, maxUnit)
	}
	if in.Status != nil {
		c.said.Status = oneLine(*in.Status, maxStatus)
		c.sayProgress()
	}
	return c.respond([]byte("{}"))
}

// sayProgress passes on the latest report of the call.
func (c *call) sayProgress() {
	if c.Progress != nil {
		c.outside(func() { c.Progress(c.said) })
	}
}

// oneLine returns text of a plugin on one line, without control and invisible
// characters, cut to n bytes.
func oneLine(text string, n int) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, text)
	return clip(strings.Join(strings.Fields(text), " "), n)
}

// Progress is a tool's report on its progress and status. It has the latest value of
// each field.
type Progress struct {
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"`   // negative if unknown
	Message string  `json:"message,omitempty"` // message of this step
	Unit    string  `json:"unit,omitempty"`    // unit of Done and Total, such as "files"
	Status  string  `json:"status,omitempty"`  // current activity of the tool
	// Narration is the status text from the tool's manifest, written for a person.
	// The caller of the host sets it.
	Narration string `json:"narration,omitempty"`
}

// Counted reports whether p has progress numbers.
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

// amount formats the counts with their unit, such as "3 of 10 files"; empty without a
// unit.
func (p Progress) amount() string {
	if p.Unit == "" || !p.Counted() {
		return ""
	}
	text := strconv.FormatFloat(p.Done, 'g', 6, 64)
	if p.Total > 0 {
		text += " of " + strconv.FormatFloat(p.Total, 'g', 6, 64)
	}
	return text + " " + p.Unit
}
