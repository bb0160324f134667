package lock

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/human"
)

var (
	pluginName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)
	toolName   = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	digest     = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	ociDigest  = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)
)

// check returns the first problem in a lock.
func (f *File) check() error {
	if len(f.Plugins) > MaxPlugins {
		return fmt.Errorf("it has %d plugins, expected at most %d", len(f.Plugins), MaxPlugins)
	}

	names, places := map[string]bool{}, map[[2]string]string{}
	for i := range f.Plugins {
		p := &f.Plugins[i]
		if !pluginName.MatchString(p.Name) {
			return fmt.Errorf("plugins.%d: %.80q is not the name of a plugin", i, p.Name)
		}
		if err := p.check(); err != nil {
			return fmt.Errorf("plugin %q: %w", p.Name, err)
		}

		if names[p.Name] {
			return fmt.Errorf("plugin %q: it is there twice", p.Name)
		}
		place := [2]string{p.Source, p.Resolved}
		if IsOCI(p.Source) {
			place[1] = ""
		}
		if other, ok := places[place]; ok {
			return fmt.Errorf("plugin %q: it has the source and file of the plugin %q", p.Name, other)
		}
		names[p.Name], places[place] = true, p.Name
	}
	return nil
}

func (p *Plugin) check() error {
	for _, field := range []struct{ name, text string }{
		{"version", p.Version}, {"source", p.Source}, {"resolved", p.Resolved},
	} {
		if field.text == "" {
			return fmt.Errorf("%s is missing", field.name)
		}
		if err := checkText(field.text); err != nil {
			return fmt.Errorf("%s: %w", field.name, err)
		}
	}

	if err := p.checkResolved(); err != nil {
		return fmt.Errorf("resolved: %w", err)
	}
	if err := checkDigest(p.Module); err != nil {
		return fmt.Errorf("module: %w", err)
	}
	if p.Sidecar != "" {
		if err := checkDigest(p.Sidecar); err != nil {
			return fmt.Errorf("sidecar: %w", err)
		}
	}
	if err := p.checkTools(); err != nil {
		return err
	}
	if err := checkGrants(p.Grants); err != nil {
		return fmt.Errorf("grants: %w", err)
	}
	return p.checkSigner()
}

// IsOCI reports whether a source is a reference to a registry.
func IsOCI(source string) bool { return strings.HasPrefix(source, "oci://") }

func (p *Plugin) checkResolved() error {
	if IsOCI(p.Source) {
		if !ociDigest.MatchString(p.Resolved) || strings.Contains(p.Resolved, `\`) {
			return fmt.Errorf("expected a reference with a digest, such as ghcr.io/acme/web@sha256:…, found %.80q", p.Resolved)
		}
		return nil
	}

	if path.Base(p.Resolved) != p.Resolved || strings.Contains(p.Resolved, `\`) || path.Ext(p.Resolved) != ".wasm" {
		return fmt.Errorf("expected the name of a file that ends in .wasm, without a folder, found %.80q", p.Resolved)
	}
	return nil
}

func (p *Plugin) checkTools() error {
	if len(p.Tools) == 0 || len(p.Tools) > abi.MaxTools {
		return fmt.Errorf("tools: expected 1 to %d, found %d", abi.MaxTools, len(p.Tools))
	}
	for _, name := range sortedKeys(p.Tools) {
		if !toolName.MatchString(name) {
			return fmt.Errorf("tools: %.80q is not the name of a tool", name)
		}
		if err := checkDigest(p.Tools[name]); err != nil {
			return fmt.Errorf("tools.%s: %w", name, err)
		}
	}
	return nil
}

func checkGrants(grants []string) error {
	if len(grants) > MaxGrants {
		return fmt.Errorf("expected at most %d, found %d", MaxGrants, len(grants))
	}
	for i, g := range grants {
		if err := checkText(g); err != nil {
			return err
		}
		if g == "" || slices.Contains(grants[:i], g) {
			return fmt.Errorf("%q is empty or there twice", g)
		}
	}
	return nil
}

func (p *Plugin) checkSigner() error {
	ours := p.Source == Starter || p.Source == BuiltIn
	switch s := p.Signer; {
	case ours && (s != nil || p.Unsigned):
		return errors.New("it comes with the program: expected neither signer nor unsigned")
	case ours:
		return nil
	case (s == nil) != p.Unsigned:
		return errors.New("expected either a signer or unsigned: true")
	case s == nil:
		return nil
	default:
		return s.check()
	}
}

func (s *Signer) check() error {
	set := 0
	for _, text := range []string{s.Minisign, s.Key} {
		if err := checkText(text); err != nil {
			return fmt.Errorf("signer: %w", err)
		}
		if text != "" {
			set++
		}
	}
	if s.Sigstore != nil {
		set++
		for _, text := range []string{s.Sigstore.Issuer, s.Sigstore.Identity} {
			if err := checkText(text); err != nil || text == "" {
				return errors.Join(errors.New("signer.sigstore: expected an issuer and an identity"), err)
			}
		}
	}

	if set != 1 {
		return errors.New("signer: expected one of minisign, key and sigstore")
	}
	return nil
}

func checkDigest(text string) error {
	if !digest.MatchString(text) {
		return fmt.Errorf("expected sha256: and 64 digits of 0-9 and a-f, found %.80q", text)
	}
	return nil
}

// checkText refuses texts that are too long, and texts that look like something
// else.
func checkText(text string) error {
	if len(text) > MaxText {
		return fmt.Errorf("expected at most %d bytes, found %d", MaxText, len(text))
	}
	if visible := string(human.Visible([]byte(text))); visible != text || strings.ContainsAny(text, "\n\t") {
		return fmt.Errorf("invisible characters in %.200q", visible)
	}
	return nil
}
