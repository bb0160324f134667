package server

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/gotool"
)

// TestScriptsWithMistakes: scripts as models write them and should not have. Each comes to
// the value that was meant, or to a sentence that says what to write. The file has pairs: a
// script, and what the model reads.
func TestScriptsWithMistakes(t *testing.T) {
	const file = "testdata/mistakes.txtar"
	photo := gotool.Tool{Name: "photo", Description: "Takes a photo.", Hints: abi.Hints{Readonly: true}, Handler: gotool.Handle(func(_ context.Context, c *gotool.Call, _ struct{}) (gotool.None, error) {
		return gotool.None{}, c.Content(abi.Block{Type: "image", Data: []byte("a cat"), MIMEType: "image/png"})
	})}
	s := openScripts(t, Config{Tools: []gotool.Tool{photo}})
	archive, err := txtar.ParseFile(file)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(archive.Files), 2*30)

	for i := 0; i+1 < len(archive.Files); i += 2 {
		script, want := archive.Files[i], &archive.Files[i+1]
		require.Equal(t, script.Name+", what the model reads", want.Name)

		t.Run(script.Name, func(t *testing.T) {
			r, _ := s.Service.Call(t.Context(), Request{Tool: "exec", Args: code(strings.TrimSuffix(string(script.Data), "\n"))})
			got := readByModel(r)
			if *update {
				want.Data = []byte(got)
			}
			require.Equal(t, string(want.Data), got)
		})
	}
	if *update {
		require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o644))
	}
}

// readByModel returns the value or the error of a result, and its content blocks.
func readByModel(r abi.Result) string {
	var b strings.Builder
	if r.Value != nil {
		b.WriteString("value: " + string(r.Value) + "\n")
	}
	if r.Error != "" {
		b.WriteString("error: " + r.Error + "\n")
	}
	for _, block := range r.Content {
		fmt.Fprintf(&b, "%s: %s%s\n", block.Type, block.Text, block.MIMEType)
	}
	return b.String()
}

// A script that has failed begins none of the calls that wait in its queue: a model that
// repeats the script would make them twice.
func TestFailedScriptBeginsNothing(t *testing.T) {
	var l ledger
	s := openScripts(t, Config{Tools: l.tools()})
	r, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "exec", Args: code(
		`await Promise.all(Array.from({ length: 200 }, (_, i) => i === 100 ? Promise.reject(new Error("no")) : tools.put({ text: String(i) })))`)})
	require.NoError(t, err)
	require.Contains(t, r.Error, "Error: no")
	require.Len(t, l.all(), 63)
}

// TestScriptsAct: a script that asks cannot act against the answer, whatever it reads of it.
func TestScriptsAct(t *testing.T) {
	const form = `{ type: "object", properties: { ok: { type: "boolean" }, why: { type: "string" } }, required: ["ok"] }`
	yes, no, text := accepted(`{"ok":true}`), accepted(`{"ok":false}`), func(s string) abi.Answer { return accepted(`{"answer":"` + s + `"}`) }
	declined, dismissed := abi.Answer{Action: abi.AnswerDecline}, abi.Answer{Action: abi.AnswerCancel}
	boolean := func(s string) abi.Answer { return accepted(`{"answer":` + s + `}`) }

	for name, c := range map[string]struct {
		script string
		answer abi.Answer
		want   string
	}{
		"a question as a condition":          {`if (await ask("Delete?")) return "deleted"; return "kept"`, text("sure"), `value: "deleted"`},
		"declined":                           {`if (await ask("Delete?")) return "deleted"; return "kept"`, declined, `error: ToolError: the user declined: "Delete?"`},
		"dismissed":                          {`if (await ask("Delete?")) return "deleted"; return "kept"`, dismissed, `error: ToolError: the user dismissed the question: "Delete?"`},
		"a text that says no":                {`if (await ask("Delete?")) return "deleted"; return "kept"`, text(" No."), `error: ToolError: the user answered " No.": "Delete?"`},
		"a variable":                         {`const ok = await ask("Delete?"); if (!ok) return "kept"; return "deleted"`, declined, `error: ToolError: the user declined: "Delete?"`},
		"caught":                             {`try { await ask("Delete?") } catch (e) { return [e.kind, e.action] }`, declined, `value: ["declined","decline"]`},
		"true":                               {`return await ask("Delete?", { type: "boolean" }) ? "deleted" : "kept"`, boolean("true"), `value: "deleted"`},
		"false":                              {`return await ask("Delete?", { type: "boolean" }) ? "deleted" : "kept"`, boolean("false"), `value: "kept"`},
		"a boolean declined":                 {`return await ask("Delete?", { type: "boolean" }) ? "deleted" : "kept"`, declined, `error: ToolError: the user declined: "Delete?"`},
		"a boolean read as a form":           {`const r = await ask("Delete?", { type: "boolean" }); return r.ok ? "deleted" : "kept"`, boolean("true"), `error: TypeError: ask returned true, which has no "ok": use it as it is`},
		"a form":                             {`const r = await ask("Delete?", ` + form + `); return r.ok ? "deleted" : "kept"`, yes, `value: "deleted"`},
		"a form that says no":                {`const r = await ask("Delete?", ` + form + `); return r.ok ? "deleted" : "kept"`, no, `value: "kept"`},
		"an absent field of a form":          {`const r = await ask("Delete?", ` + form + `); return [typeof r.why, r]`, yes, `value: ["undefined",{"ok":true}]`},
		"a field that a form has not":        {`const r = await ask("Delete?", ` + form + `); return r.yes ? "deleted" : "kept"`, yes, `error: TypeError: the answer has no "yes": it has ok, why`},
		"a form as MCP has it":               {`const r = await ask("Delete?", ` + form + `); if (r.action !== "accept") return "kept"; return "deleted"`, yes, `error: TypeError: the answer has no "action": it has ok, why`},
		"a text in a text":                   {"const a = await ask(\"Who?\"); return `Hello ${a}`", text("Ana"), `value: "Hello Ana"`},
		"a text as MCP has it":               {`const a = await ask("Who?"); return a.content.answer`, text("Ana"), `error: TypeError: ask returned "Ana", which has no "content": use it as it is`},
		"the field of a text":                {`const { answer } = await ask("Who?"); return answer`, text("Ana"), `error: TypeError: ask returned "Ana", which has no "answer": use it as it is`},
		"other texts":                        {`await ask("Who?"); return ["b".content, Object.assign("c", { answer: 1 }).answer]`, text("Ana"), `value: [null,1]`},
		"choices":                            {`return await ask("Which?", { enum: ["red", "blue"], type: "string" })`, text("red"), `value: "red"`},
		"a list of choices":                  {`return await ask("Which?", ["red", "blue"])`, abi.Answer{}, `error: TypeError: the second argument of ask is a JSON Schema: write { type: "string", enum: ["red","blue"] }`},
		"a schema without a type of its own": {`return await ask("Delete?", { properties: { ok: { type: "boolean" } } })`, yes, `value: {"ok":true}`},
		"no question":                        {`return await ask()`, abi.Answer{}, `error: TypeError: ask takes a question and the JSON Schema of its answer: await ask("…", { type: "boolean" })`},
		"a question as an object":            {`return await ask({ message: "Which?" })`, abi.Answer{}, `error: TypeError: ask takes a question and the JSON Schema of its answer: await ask("…", { type: "boolean" })`},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			s := openScripts(t, Config{})
			r, err := s.Service.Call(t.Context(), Request{Session: alice, Tool: "exec", Args: code(c.script), Ask: func(context.Context, abi.Questions) (abi.Answers, error) {
				asked = true
				return abi.Answers{Answers: map[string]abi.Answer{"answer": c.answer}}, nil
			}})
			require.NoError(t, err)
			read, _, _ := strings.Cut(readByModel(r), "\n")
			require.Equal(t, c.want, read)
			require.Equal(t, c.answer.Action != "", asked, "what no user can answer does not reach one")
		})
	}
}
