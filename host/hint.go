package host

import "strings"

// Explanations of tool errors that the sandbox causes.
const (
	hintReadonly = " (the tool has the hint readonly, so its folders are mounted read-only)"
	hintNetwork  = " (plugins have no network but the operation http: in Go, import guest/web)"
	hintFolders  = " (a plugin reaches only the folders that it was granted)"
	hintPlatform = " (plugins have no network, no threads and no other programs)"
)

// libraryErrors are error texts of libraries for features that the sandbox lacks,
// mostly without a call to the host. They read as if the feature existed but was
// broken.
var libraryErrors = []struct{ text, hint string }{
	{"Connection refused", hintNetwork},                        // Go
	{"Connection reset by peer", hintNetwork},                  // Go, of a name server
	{"operation not supported on this platform", hintPlatform}, // Rust
	{"Capabilities insufficient", hintFolders},                 // C
}

// hint returns an explanation to append to a tool error, or nothing.
func (o *outcome) hint(text string) string {
	hint := ""
	switch {
	case o.unwritten && o.Readonly:
		hint = hintReadonly
	case o.wasi.Connected:
		hint = hintNetwork
	case o.wasi.Outside && strings.Contains(text, "No such file or directory"): // Go
		hint = hintFolders
	default:
		for _, e := range libraryErrors {
			if o.ops.Web == nil && strings.Contains(text, e.text) {
				hint = e.hint
				break
			}
		}
	}
	if strings.HasSuffix(text, hint) { // the plugin added it itself
		return ""
	}
	return hint
}
