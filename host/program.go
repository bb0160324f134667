package host

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/guestcall"
)

// exited reads the output of a guest that ended with an exit code. A program that has only a
// message on stderr has failed, even if a code other than 0 may be a success: linters use
// one code for findings and for failures.
func (o *outcome) exited(code int) error {
	said := answer.Clean(o.answer.Stderr.Bytes())
	failed := code != 0 && said != "" && len(o.answer.Result) == 0
	if o.isProgram() && o.Command.Succeeds(code) && !failed {
		if code != 0 {
			o.ExitCode = &code
		}
		return o.answered(abi.InvokeOK)
	}

	o.ExitCode = &code
	o.fail(fmt.Sprintf("exited with code %d", code))
	switch {
	case said != "":
		said = ": " + said
	case o.isProgram():
		said = stdoutEnd(o.answer.Result)
	}
	o.Error += o.hint(said) + said // what the program wrote cannot pass for a hint
	return nil
}

// stdoutEnd returns the part of an error text that describes the output of a program that wrote no
// message.
func stdoutEnd(stdout []byte) string {
	if where := answer.NotUTF8(stdout); where != "" {
		return "; its stdout is not text" + where
	}
	if said := answer.Clean(answer.Ends(stdout)); said != "" {
		return "; the end of its stdout: " + said
	}
	return ""
}

// fail makes the call a tool error. The log gets everything that a program wrote, unless
// it could contain a secret.
func (o *outcome) fail(reason string) {
	o.Kind, o.Value, o.Error = abi.ToolError, nil, reason
	if o.isProgram() && !o.Secret {
		o.logger().Info("the program failed", "error", reason,
			"stdout", answer.Valid(o.answer.Result, answer.MaxLogged), "stderr", answer.Valid(o.stderr, answer.MaxLogged))
	}
}

// output reads the stdout of a program as the tool's manifest says. Nothing in it is
// repaired: a model would take it for what the program wrote.
func (o *outcome) output(stdout []byte) error {
	output := o.Command.Output
	if media := output.Image(); media != "" {
		if !abi.IsImage(media, stdout) {
			o.fail(fmt.Sprintf("the output is not %s: it begins with the bytes %q", media, stdout[:min(len(stdout), 8)]))
			return nil
		}
		o.Content = append(o.Content, abi.Block{Type: "image", MIMEType: media, Data: stdout})
		return nil
	}
	if output == abi.OutputBase64 {
		o.Value = guestcall.JSON(base64.StdEncoding.EncodeToString(stdout))
		return nil
	}
	if where := answer.NotUTF8(stdout); where != "" {
		o.fail("the output is not text" + where)
		return nil
	}

	switch output {
	case abi.OutputText:
		o.Value = guestcall.JSON(string(stdout))
	case abi.OutputLines:
		o.Value = guestcall.JSON(lines(string(stdout)))
	case abi.OutputJSON:
		if o.Value = compactJSON(stdout); o.Value == nil {
			o.fail(fmt.Sprintf("the output is not JSON: %v", json.Unmarshal(stdout, new(json.RawMessage))))
		}
	default:
		if o.Value = compactJSON(stdout); o.Value == nil {
			o.Value = guestcall.JSON(strings.TrimRight(string(stdout), "\n"))
		}
	}
	return nil
}

// lines splits a text. The last line may end with a line feed or not.
func lines(text string) []string {
	if text == "" {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
