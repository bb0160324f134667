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
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/audit"
)

// The answers of a user.
const (
	answerOnce    = "once"
	answerSession = "session"
	answerNo      = "no"
)

// approvalKey is the key of the question. No plugin can use it.
const approvalKey = "toolhost/approval"

// question is what the user of a client is asked. The arguments are the end of it, so that
// nothing in them can pass for more of it.
func question(tool *callable, a Approval) string {
	text := "Allow " + tool.Name
	if a.Caller != "" {
		text += ", called by " + a.Caller
	}
	if tool.plugin != nil {
		m := tool.plugin.Manifest
		text += fmt.Sprintf(" (plugin %s %s", m.Name, m.Version)
		if version, err := tool.Version(); err == nil {
			text += fmt.Sprintf(", SHA-256 %.12s…", version)
		}
		text += ")"
	}
	text += "?"
	if grants := grantsOf(tool); len(grants) > 0 {
		text += " It may use: " + strings.Join(grants, ", ") + "."
	}

	args, cut := shownArgs(a.Args, maxAskedArgs)
	if !cut {
		return text + " Its arguments: " + args
	}
	return text + fmt.Sprintf(" Its arguments have %d bytes (SHA-256 %s), of which this is only the beginning: %s", len(a.Args), digestOf(a.Args), args)
}

// askUser asks the user of a client, and keeps an approval for the session.
func (p Approvals) askUser(ctx context.Context, tool *callable, a Approval) error {
	s := p.service
	text := question(tool, a)
	schema := json.RawMessage(`{"type":"object","properties":{"decision":{"type":"string","title":"Decision","enum":["once","session","no"],"enumNames":["Allow once","Allow in this session","Do not allow"]}},"required":["decision"]}`)

	answers, err := a.ask(ctx, abi.Questions{Questions: map[string]abi.Question{approvalKey: {Message: text, Schema: schema}}})
	switch {
	case errors.Is(err, ErrDenied): // the client cannot ask
		return errWaits
	case errors.Is(err, abi.ErrAnswer):
		s.audit.decided(audit.Asked, a, "user", "")
		s.audit.decided(audit.Refused, a, "user", "")
		return fmt.Errorf("%w: the client's answer does not fit the question, so nobody has allowed it", ErrApproval)
	case err != nil:
		return err
	}
	s.audit.decided(audit.Asked, a, "user", "")
	decision := decisionOf(answers.Answers[approvalKey])
	if decision != answerOnce && decision != answerSession {
		s.audit.decided(audit.Refused, a, "user", "")
		return fmt.Errorf("%w: the user did not allow it", ErrApproval)
	}
	if decision == answerSession {
		if err := p.keepApproval(ctx, tool, a.Session, "user"); err != nil {
			s.log.Warn("approval not kept", "tool", tool.Name, "session", a.Session, "error", err)
		}
	}
	s.audit.decided(audit.Approved, a, "user", decision)
	return nil
}

// decisionOf is what a user decided. It reads names exactly, as the schema does: a
// "Decision" does not stand for a "decision".
func decisionOf(answer abi.Answer) string {
	var said map[string]any
	if answer.Action != abi.AnswerAccept || strictjson.Decode(answer.Content, &said) != nil {
		return answerNo
	}
	decision, _ := said["decision"].(string)
	return decision
}

// fingerprint is what an approval is for: the code of a tool, and what it may use. It is
// empty if the code is not known now.
func fingerprint(tool *callable) string {
	version, err := tool.Version()
	if err != nil {
		return ""
	}
	var granted []byte
	if tool.plugin != nil {
		if granted, err = json.Marshal(tool.plugin.Grant); err != nil {
			return ""
		}
	}
	sum := sha256.Sum256([]byte(tool.Name + "\x00" + version + "\x00" + string(granted)))
	return hex.EncodeToString(sum[:16])
}

// grantsOf are the grants of a tool's plugin.
func grantsOf(tool *callable) []string {
	if tool.plugin == nil {
		return nil
	}
	return tool.plugin.Grant.Names()
}

// approvalScope has the approvals that are kept: of a session, or of all.
func (s *store) approvalScope(session string) background.Values {
	return background.ValuesIn(s.engine, engine.Scope{Session: session, Name: "approvals"}, engine.ValueLimit{Count: 1000, Bytes: 1 << 20}, 4<<10)
}

// kept is an approval that is kept.
type kept struct {
	Fingerprint string `json:"fingerprint"`
	By          string `json:"by"`
}

func (p Approvals) keepApproval(ctx context.Context, tool *callable, session, by string) error {
	s := p.service
	print := fingerprint(tool)
	if print == "" {
		return replacing(tool)
	}
	data, err := json.Marshal(kept{print, by})
	if err == nil {
		_, err = s.approvalScope(session).Set(ctx, tool.Name, data, AnyVersion)
	}
	return err
}

// keptApproval reports whether an approval of the same code with the same grants is kept.
func (p Approvals) keptApproval(ctx context.Context, tool *callable, a Approval) bool {
	s := p.service
	for _, session := range []string{"", a.Session} {
		v, err := s.approvalScope(session).Get(ctx, tool.Name)
		var k kept
		if err == nil && json.Unmarshal(v.Data, &k) == nil && k.Fingerprint != "" && k.Fingerprint == fingerprint(tool) {
			return true
		}
	}
	return false
}

// shownArgs are up to so many bytes of arguments as a person sees them, and whether some
// are left out.
func shownArgs(args json.RawMessage, most int) (string, bool) {
	text := legible(args)
	return clip(text, most), len(text) > most
}

// legible is JSON on one line in which nothing is hidden: characters that move the writing
// direction, break a line, or are not seen, are escaped.
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
