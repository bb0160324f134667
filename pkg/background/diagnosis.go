package background

import (
	"errors"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// Maximum sizes of the parts of a diagnosis, in bytes: 4 KiB in total.
const (
	maxDiagnosed = 1 << 10
	maxTrace     = 3 << 9
	maxWords     = 3 << 9
)

// diagnosis returns why a run failed, for operators: the executor's own text, or else
// the error, unless models see it anyway, in shown. It returns nil if there is neither.
func diagnosis(given *engine.Diagnosis, err error, shown *engine.RunError) *engine.Diagnosis {
	if given != nil {
		return CleanDiagnosis(*given)
	}
	if crash, ok := errors.AsType[*panicError](err); ok {
		return &engine.Diagnosis{Reason: head(fmt.Sprintf("panic: %v", crash.value), maxDiagnosed), Trace: head(string(crash.stack), maxTrace)}
	}

	typed, _ := errors.AsType[*Error](err)
	switch {
	case err == nil, shown.Kind == engine.KindTimeout, shown.Kind == engine.KindInterrupted:
		return nil // it would repeat shown
	case typed == nil:
		return &engine.Diagnosis{Reason: head(err.Error(), maxDiagnosed)}
	case typed.Err != nil:
		return &engine.Diagnosis{Reason: head(typed.Err.Error(), maxDiagnosed)}
	case typed.shown() == nil:
		return &engine.Diagnosis{Reason: head(typed.Message, maxDiagnosed)}
	}
	return nil
}

// CleanDiagnosis returns d without control characters, cut to the size limits of a
// record.
func CleanDiagnosis(d engine.Diagnosis) *engine.Diagnosis {
	return &engine.Diagnosis{Reason: head(d.Reason, maxDiagnosed), Trace: head(d.Trace, maxTrace), LastWords: rear(d.LastWords, maxWords)}
}

// head cleans a text and keeps its beginning, up to most bytes; rear keeps its end.
func head(text string, most int) string {
	text = strings.TrimSpace(output.Clean([]byte(text[:min(len(text), 4*most)])))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-len("…")], "") + "…"
	}
	return text
}

func rear(text string, most int) string {
	text = strings.TrimSpace(output.Clean([]byte(text[max(0, len(text)-4*most):])))
	if len(text) > most {
		text = "…" + strings.ToValidUTF8(text[len(text)-most+len("…"):], "")
	}
	return text
}
