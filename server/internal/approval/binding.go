package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/wire"
)

// A Binding identifies the code and grants that a held run is bound to. Its fields are stored
// in the terms of the run; the tool, the arguments, the session, the caller and the digest of
// the plugin are in the run itself.
type Binding struct {
	Fingerprint string `json:"approval,omitempty"` // identifies the code and grants that a person was asked to approve; empty if the run was never held
	Process     string `json:"host,omitempty"`     // process that holds the secret arguments of a ticket
}

// BindingOf returns the binding of a run.
func BindingOf(run engine.Run) (b Binding, err error) {
	if run.Terms != nil {
		if err := json.Unmarshal(run.Terms, &b); err != nil {
			return b, fmt.Errorf("reading the terms of %s: %w", run.ID, err)
		}
	}
	return b, nil
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

// Bind returns the binding of a run of a tool. Its error means that the code is unknown.
func Bind(tool *catalog.Tool) (Binding, error) {
	b := Binding{Fingerprint: fingerprint(tool)}
	if b.Fingerprint == "" {
		return b, tool.Replacing()
	}
	return b, nil
}

// Same returns an error if a run was held for other code or other grants than the tool has
// now.
func Same(tool *catalog.Tool, run engine.Run) error {
	b, err := BindingOf(run)
	if err == nil && b.Fingerprint != "" && b.Fingerprint != fingerprint(tool) {
		err = reason.Refuse("the plugin of %s, or what it may use, has changed since somebody was asked to approve it", run.Tool)
	}
	return err
}

// ErrChanged means that the tool's code or grants have changed since they were shown to the
// person who decides.
var ErrChanged = errors.New("the tool or what it may use has changed since it was shown: look at it again")

// Unchanged returns an error that matches ErrChanged if the code or the grants of the tool
// that would run differ from those that the run was held for, or from the fingerprint that
// was shown.
func Unchanged(tool *catalog.Tool, run engine.Run, shown string) error {
	err := tool.SameVersion(run)
	if err == nil {
		err = Same(tool, run)
	}
	switch {
	case err != nil:
		return &reason.Error{Reason: reason.Reason{Code: wire.CodeConflict, Text: reason.Of(err).Text}, Err: ErrChanged}
	case shown != "" && shown != fingerprint(tool):
		return conflict(ErrChanged)
	}
	return nil
}

// conflict returns the error of a rejected decision.
func conflict(err error) error {
	return &reason.Error{Reason: reason.Reason{Code: wire.CodeConflict, Text: err.Error()}, Err: err}
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
