package lock

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/toolhost/toolhost/abi"
)

// Differences returns a phrase for each difference between a plugin and its accepted
// version. It ignores withdrawn grants, because they do no harm.
func (p *Plugin) Differences(have *Plugin) []string {
	return append(p.FileDifferences(have), p.toolDifferences(have)...)
}

// DifferencesIn is like Differences, for callers that have the accepted manifest. It also says
// which parts of a tool have changed, and which needs have been added.
func (p *Plugin) DifferencesIn(have *Plugin, before, now Described) []string {
	found := p.FileDifferences(have)
	more := Beyond(now.Needs, before.Needs)
	if len(more) > 0 {
		found = append(found, "it needs more: "+strings.Join(more, ", "))
	}

	found = append(found, newOrGone(before.Manifest, now.Manifest)...)
	for _, c := range Changes(before, now) {
		_, was := before.Manifest.Lookup(c.Tool)
		_, is := now.Manifest.Lookup(c.Tool)
		if was == is && (c.What != needs || len(more) == 0) {
			found = append(found, c.What+" has changed")
		}
	}
	return found
}

// newOrGone names the tools that appear in only one of two manifests.
func newOrGone(before, now *abi.Manifest) (found []string) {
	for _, name := range toolNames(before, now) {
		_, was := before.Lookup(name)
		_, is := now.Lookup(name)
		switch {
		case !was:
			found = append(found, fmt.Sprintf("the tool %s is new", name))
		case !is:
			found = append(found, fmt.Sprintf("the tool %s is gone", name))
		}
	}
	return found
}

// FileDifferences is like Differences, but does not compare tools.
func (p *Plugin) FileDifferences(have *Plugin) (found []string) {
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }

	if have.Name != p.Name {
		add("its name is %q instead of %q", have.Name, p.Name)
	}
	if have.Source != p.Source {
		add("it is from %s instead of %s", have.Source, p.Source)
	}
	if have.Version != p.Version {
		add("%s", VersionChange(p.Version, have.Version))
	}
	if have.Resolved != p.Resolved {
		add("it is %s instead of %s", have.Resolved, p.Resolved)
	}
	if have.Module != p.Module {
		add("%s", ModuleChange(p.Module, have.Module))
	}

	switch {
	case have.Sidecar == p.Sidecar:
	case p.Sidecar == "":
		add("it has a manifest next to it")
	case have.Sidecar == "":
		add("it has no manifest next to it")
	default:
		add("the manifest next to it is %s instead of %s", Short(have.Sidecar), Short(p.Sidecar))
	}

	more := Beyond(have.Grants, p.Grants)
	more = slices.DeleteFunc(more, func(g string) bool { return slices.Contains(p.Grants, have.Wider[g]) })
	if len(more) > 0 {
		add("%s", MoreGranted(more))
	}
	if was, is := p.SignedBy(), have.SignedBy(); was != is {
		add("it is %s instead of %s", is, was)
	}
	return found
}

func (p *Plugin) toolDifferences(have *Plugin) (found []string) {
	for _, name := range sortedKeys(have.Tools) {
		switch was, ok := p.Tools[name]; {
		case !ok:
			found = append(found, fmt.Sprintf("the tool %s is new", name))
		case was != have.Tools[name]:
			found = append(found, fmt.Sprintf("the text of the tool %s has changed", name))
		}
	}
	for _, name := range sortedKeys(p.Tools) {
		if _, ok := have.Tools[name]; !ok {
			found = append(found, fmt.Sprintf("the tool %s is gone", name))
		}
	}
	return found
}

// Equal reports whether a plugin is exactly the accepted one, including all its grants.
func (p *Plugin) Equal(have *Plugin) bool {
	return len(p.Differences(have)) == 0 && len(Beyond(p.Grants, have.Grants)) == 0
}

// VersionChange describes the change between two versions, and points out a downgrade.
func VersionChange(from, to string) string {
	text := fmt.Sprintf("version %s instead of %s", to, from)
	if semver.Compare("v"+to, "v"+from) < 0 {
		text += ", a downgrade"
	}
	return text
}

// ModuleChange describes the change of a module from one digest to another.
func ModuleChange(from, to string) string {
	return fmt.Sprintf("the module is %s instead of %s", Short(to), Short(from))
}

// MoreGranted says which grants have not been accepted.
func MoreGranted(more []string) string { return "it is granted more: " + strings.Join(more, ", ") }

// Short shortens a digest to a prefix that people can recognize.
func Short(digest string) string {
	digest = strings.TrimPrefix(digest, digestPrefix)
	return digest[:min(len(digest), 12)]
}

// Beyond returns those grants that are missing from accepted.
func Beyond(grants, accepted []string) (more []string) {
	for _, g := range grants {
		if !slices.Contains(accepted, g) {
			more = append(more, g)
		}
	}
	return more
}

// SignedBy names the signer in words that fit into a sentence.
func (p *Plugin) SignedBy() string {
	switch s := p.Signer; {
	case s == nil && p.Unsigned:
		return "unsigned"
	case s == nil:
		return "part of the program"
	case s.Minisign != "":
		return "signed by minisign " + s.Minisign
	case s.Key != "":
		return "signed by the key " + s.Key
	default:
		return fmt.Sprintf("signed by %s (%s)", s.Sigstore.Identity, s.Sigstore.Issuer)
	}
}
