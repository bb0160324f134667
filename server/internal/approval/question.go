package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/strictjson"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// maxAskedArgs is the maximum size of the arguments shown in a question, in bytes.
const maxAskedArgs = 4000

// A Question describes a held call to a user. The answer is valid for that run only, and
// only while the tool's code and grants match Fingerprint.
type Question struct {
	Run         string
	Fingerprint string
	Question    abi.Question
	Note        string // what else the call lacks; the answer stays valid if this changes
}

// The choices in the form for a held call.
const (
	chooseOnce      = "once"
	chooseArguments = string(wire.KeepArguments)
	chooseSession   = string(wire.KeepSession)
	chooseNo        = "no"
)

// form returns the schema of the answer about a held call. It also offers to approve later
// calls, if such an approval can be kept, and later calls with the same arguments, if these
// contain no secret.
func (u User) form(secret bool) json.RawMessage {
	values, names := []string{chooseOnce}, []string{"Allow once"}
	if u.Keeps && !secret {
		values, names = append(values, chooseArguments), append(names, "Allow with these arguments "+u.span())
	}
	if u.Keeps {
		values, names = append(values, chooseSession), append(names, "Allow "+u.span())
	}
	choice := map[string]any{"type": "string", "title": "Decision", "enum": append(values, chooseNo), "enumNames": append(names, "Do not allow")}
	schema, _ := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{"decision": choice}, "required": []string{"decision"}})
	return schema
}

// question describes a held run to a user. The arguments come last in the text, so that
// nothing in them can pass for another part of it.
func (m *Manager) question(ctx context.Context, tool *catalog.Tool, run engine.Run, u User) (Question, error) {
	args, err := m.args(ctx, run)
	if err != nil {
		return Question{}, err
	}
	text := "Allow " + tool.Name
	if caller := callerOf(run); caller != "" {
		text += ", called by " + caller
	}
	if tool.Plugin != nil {
		m := tool.Plugin.Manifest
		text += fmt.Sprintf(" (plugin %s %s, SHA-256 %.12s…)", m.Name, m.Version, run.Version)
	}
	text += "?"
	if grants := grantsOf(tool); len(grants) > 0 {
		text += " It may use: " + strings.Join(grants, ", ") + "."
	}

	shown, cut := shownArgs(args, maxAskedArgs)
	about := " Its arguments: "
	if cut {
		about = fmt.Sprintf(" Its arguments have %d bytes (SHA-256 %s), of which this is only the beginning: ", len(args), digestOf(args))
	}
	if run.Secret {
		text += " Its secret arguments are not shown."
	}
	return Question{run.ID, fingerprint(tool), abi.Question{Message: text + about + shown, Schema: u.form(run.Secret)}, m.Lacks(ctx, run.Session, tool)}, nil
}

// args returns the arguments of a held run, without secrets.
func (m *Manager) args(ctx context.Context, run engine.Run) (json.RawMessage, error) {
	args, err := m.Engine.Payload(ctx, run.ID, engine.PartArgs)
	if errors.Is(err, engine.ErrNotFound) {
		err = nil
	}
	return args, err
}

// errUndecided means that the user of a client has not decided. The call stays held.
var errUndecided = errors.New("the user has not decided")

// decisionOf returns what a user has decided. Names are case-sensitive, as in the schema:
// "Decision" is not "decision".
func decisionOf(q Question, answer abi.Answer) (wire.Decide, error) {
	decision := wire.Decide{Fingerprint: q.Fingerprint, Reason: "the user did not allow it"}
	switch {
	case answer.Action == abi.AnswerDecline:
		return decision, nil
	case answer.Action != abi.AnswerAccept || question.Check("decision", q.Question, answer) != nil:
		return decision, errUndecided
	}

	var chosen map[string]any
	if err := strictjson.Decode(answer.Content, &chosen); err != nil {
		return decision, errUndecided
	}
	switch chosen["decision"] {
	case chooseOnce:
		decision.Approve = true
	case chooseArguments:
		decision.Approve, decision.Keep = true, wire.KeepArguments
	case chooseSession:
		decision.Approve, decision.Keep = true, wire.KeepSession
	}
	return decision, nil
}

// grantsOf returns the grants of a tool's plugin.
func grantsOf(tool *catalog.Tool) []string {
	if tool.Plugin == nil {
		return nil
	}
	return tool.Plugin.Grant.Names()
}

// shownArgs returns up to most bytes of arguments for a person to read, and whether some
// are left out.
func shownArgs(args json.RawMessage, most int) (string, bool) {
	text := legible(args)
	return reason.Clip(text, most), len(text) > most
}

// legible returns JSON on one line in which nothing is hidden: invisible characters, line
// breaks and characters that change the writing direction are escaped.
func legible(data json.RawMessage) string {
	var line bytes.Buffer
	if json.Compact(&line, data) != nil {
		return output.Clean(data)
	}
	var out strings.Builder
	for _, r := range line.String() {
		switch {
		case r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
