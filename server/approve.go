package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/strictjson"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// A HeldCall describes a call that waits for approval to the user of a client. The answer
// counts for that run only, and only while the tool's code and grants match Fingerprint.
type HeldCall struct {
	Run         string       // id of the run that holds the call
	Fingerprint string       // identifies the tool's code and grants
	Question    abi.Question // what the user is asked
}

// DecideFunc asks the user of a client about a held call, and returns the answer. It
// returns [ErrAskAgain] if the client answers with its next request, see
// [Request.Resumes]. Any other error leaves the call held.
type DecideFunc func(ctx context.Context, call HeldCall) (abi.Answer, error)

// The choices in the form for a held call.
const (
	chooseOnce      = "once"
	chooseArguments = "arguments"
	chooseSession   = "session"
	chooseNo        = "no"
)

// form returns the schema of the answer about a held call. It offers to approve later
// calls too if such an approval can be kept, those with the same arguments only if the
// arguments have no secret.
func (k keeping) form(secret bool) json.RawMessage {
	values, names := []string{chooseOnce}, []string{"Allow once"}
	if k.session && !secret {
		values, names = append(values, chooseArguments), append(names, "Allow with these arguments "+k.span())
	}
	if k.session {
		values, names = append(values, chooseSession), append(names, "Allow "+k.span())
	}
	choice := map[string]any{"type": "string", "title": "Decision", "enum": append(values, chooseNo), "enumNames": append(names, "Do not allow")}
	schema, _ := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{"decision": choice}, "required": []string{"decision"}})
	return schema
}

// heldCall describes a held run to the user of a client. The arguments come last in the
// question, so that nothing in them can pass for another part of it.
func (p Approvals) heldCall(ctx context.Context, tool *catalog.Tool, run engine.Run, k keeping) (HeldCall, error) {
	args, err := p.service.engine.Payload(ctx, run.ID, engine.PartArgs)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return HeldCall{}, err
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
	return HeldCall{run.ID, fingerprint(tool), abi.Question{Message: text + about + shown, Schema: k.form(run.Secret)}}, nil
}

// errUndecided means that the user of a client has not decided. The call stays held.
var errUndecided = errors.New("the user has not decided")

// decisionOf returns what a user has decided. Names are case-sensitive, as in the schema:
// "Decision" is not "decision".
func decisionOf(call HeldCall, answer abi.Answer) (wire.Decide, error) {
	decision := wire.Decide{Fingerprint: call.Fingerprint, Reason: "the user did not allow it"}
	switch {
	case answer.Action == abi.AnswerDecline:
		return decision, nil
	case answer.Action != abi.AnswerAccept || CheckAnswer("decision", call.Question, answer) != nil:
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

// fingerprint identifies what an approval is for: the code of a tool, and its grants. It
// is empty while the code is unknown.
func fingerprint(tool *catalog.Tool) string {
	version, err := tool.Version()
	if err != nil {
		return ""
	}
	var granted []byte
	if tool.Plugin != nil {
		if granted, err = json.Marshal(tool.Plugin.Grant); err != nil {
			return ""
		}
	}
	sum := sha256.Sum256([]byte(tool.Name + "\x00" + version + "\x00" + string(granted)))
	return hex.EncodeToString(sum[:16])
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
		return Clean(data)
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

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
