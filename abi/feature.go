package abi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// maxRequires is the maximum number of features that a manifest may require.
const maxRequires = 32

// isExtension reports whether hosts ignore a field of a manifest.
func isExtension(name string) bool { return strings.HasPrefix(name, "x-") && len(name) > 2 }

// Features returns the sorted names of the features of this version of the contract: needs,
// hints, limits and other optional fields, by their names in the manifest, and those functions
// and operations that a plugin can use without declaring a need. A manifest may require
// features.
func Features() []string {
	names := []string{"call_start", "checkpoint", "config_schema", "report"}
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

// missingFeatures returns a problem for each feature that a manifest requires and this
// version lacks. It ignores all other problems of the manifest.
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

// isFeature reports whether a name is a possible name of a feature.
func isFeature(name string) bool { return isName(name) && len(name) <= 64 }
