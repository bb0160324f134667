package host

import "strings"

// What a tool error means inside the sandbox.
const (
	hintReadonly = " (the tool has the hint readonly, so its folders are mounted read-only)"
	hintNetwork  = " (plugins have no network but the operation http: in Go, import guest/web)"
	hintFolders  = " (a plugin reaches only the folders that it was granted)"
	hintPlatform = " (plugins have no network, no threads and no other programs)"
)

// libraryErrors are texts of libraries that refuse what the sandbox does not have,
// mostly without asking the host. They read as if it were there, and had a fault.
var libraryErrors = []struct{ text, hint string }{
	{"Connection refused", hintNetwork},                        // Go
	{"Connection reset by peer", hintNetwork},                  // Go, of a name server
	{"operation not supported on this platform", hintPlatform}, // Rust
	{"Bad file number", hintFolders},                           // Go
	{"Capabilities insufficient", hintFolders},                 // C
}

// hint returns what to add to the text of a tool error, or nothing.
func (o *outcome) hint(text string) string {
	hint := ""
	switch {
	case o.unwritten && o.Readonly:
		hint = hintReadonly
	case o.connected:
		hint = hintNetwork
	default:
		for _, e := range libraryErrors {
			if o.web == nil && strings.Contains(text, e.text) {
				hint = e.hint
				break
			}
		}
	}
	if strings.HasSuffix(text, hint) { // the plugin says so itself
		return ""
	}
	return hint
}
