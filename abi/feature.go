package abi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// maxRequires bounds the features that a manifest requires.
const maxRequires = 32

// isExtension reports whether a field of a manifest is one that hosts pass over.
func isExtension(name string) bool { return strings.HasPrefix(name, "x-") && len(name) > 2 }

// Features returns the sorted names of the features of this version of the contract:
// needs, hints, limits and other optional fields of a tool, by their names in the
// manifest, and functions and operations without a need. A manifest may require them.
func Features() []string {
	names := []string{"call_start", "checkpoint", "report"}
	for _, t := range []reflect.Type{reflect.TypeFor[Needs](), reflect.TypeFor[Hints](), reflect.TypeFor[Limits](), reflect.TypeFor[Tool]()} {
		for i := range t.NumField() {
			if name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); options != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// missingFeatures returns the problems of the features that a manifest requires and this
// version lacks. What else is wrong with the manifest is not its affair.
func missingFeatures(manifest []byte) (problems []Problem) {
	var m struct {
		Requires []string `json:"requires"`
	}
	if json.Unmarshal(manifest, &m) != nil || len(m.Requires) > maxRequires {
		return nil
	}

	known := Features()
	for i, name := range m.Requires {
		if slices.Contains(known, name) || !isFeature(name) {
			continue
		}
		problem := fmt.Sprintf("this host lacks the feature %q, which the plugin requires: use a newer host, or an older version of the plugin", name)
		if near := Nearest(name, known); near != "" {
			problem += fmt.Sprintf("; or did its author mean %q?", near)
		}
		problems = append(problems, Problem{"/requires/" + strconv.Itoa(i), problem})
	}
	return problems
}

// isFeature reports whether a feature may have the name.
func isFeature(name string) bool { return isName(name) && len(name) <= 64 }
