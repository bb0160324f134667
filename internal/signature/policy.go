package signature

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"aead.dev/minisign"
)

// Rule trusts one signer. Exactly one of Minisign, Key and Sigstore is set.
type Rule struct {
	Minisign string // minisign public key
	Key      string // public key in PEM
	// Sigstore consists of an issuer and an identity. In the identity, * matches any
	// characters.
	Sigstore Identity
	// Plugins lists names of plugins, or patterns such as "mail_*". Sources lists folders or
	// registry references; a source that ends in a slash is a prefix. A rule with neither is
	// general. General rules do not apply to plugins that a specific rule covers, and such
	// plugins require a signature.
	Plugins, Sources []string
}

// special reports whether the rule is only for some plugins.
func (r *Rule) special() bool { return len(r.Plugins)+len(r.Sources) > 0 }

// Policy defines which signatures are accepted, and which plugins require one. It is safe
// for concurrent use as long as it does not change.
type Policy struct {
	Rules   []Rule
	Require bool // whether all plugins require a signature
	Bundles Bundles
}

// Bundles verifies Sigstore bundles.
type Bundles interface {
	// Check verifies that a bundle is a signature of data by the signer that a rule
	// trusts, and returns that signer. The error matches [ErrUntrusted] if the bundle is
	// from another signer, and [ErrInvalid] if it is not a valid signature of data.
	Check(bundle, data []byte, r Rule) (Signer, error)
}

// Check returns the problems in a rule, by the name of the field in lower case. Problems of the
// whole rule have the name "".
func (r Rule) Check() map[string]error {
	problems := map[string]error{}
	kinds := 0
	if r.Minisign != "" {
		kinds++
		if _, err := ParseMinisignKey(r.Minisign); err != nil {
			problems["minisign"] = err
		}
	}
	if r.Key != "" {
		kinds++
		if _, err := ParseKey(r.Key); err != nil {
			problems["key"] = err
		}
	}
	if r.Sigstore != (Identity{}) {
		kinds++
		if r.Sigstore.Issuer == "" || strings.Trim(r.Sigstore.Identity, "*") == "" {
			problems["sigstore"] = errors.New("expected an issuer and an identity")
		}
	}
	if kinds != 1 {
		problems[""] = errors.New("expected one of minisign, sigstore and key")
	}

	for _, pattern := range r.Plugins {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			problems["plugins"] = fmt.Errorf("%q is not a name or a pattern", pattern)
		}
	}
	return problems
}

// ParseKey parses a public key in PEM, and returns it in DER form.
func ParseKey(text string) ([]byte, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "PUBLIC KEY" || strings.TrimSpace(string(rest)) != "" {
		return nil, errors.New("expected a public key in PEM, -----BEGIN PUBLIC KEY-----")
	}
	if _, err := x509.ParsePKIXPublicKey(block.Bytes); err != nil {
		return nil, fmt.Errorf("not a public key: %w", err)
	}
	return block.Bytes, nil
}

// OfKey returns the signer with the given public key, in DER form.
func OfKey(der []byte) Signer {
	sum := sha256.Sum256(der)
	return Signer{Key: "sha256:" + hex.EncodeToString(sum[:])}
}

// Signer returns the signer of a plugin's files: its module, and the sidecar if there is
// one, which must have the same signer. It reads the signatures with read, which limits
// their size. An error of read that matches fs.ErrNotExist means that there is no signature.
// The result is the zero Signer if no trusted signer has signed the files. Signer does not
// apply rules for plugins: see [Policy.Check].
//
// An invalid signature is an error even where none is required, because the file or its
// signature must have been changed.
func (p *Policy) Signer(source string, files []File, read func(name string) ([]byte, error)) (Signer, error) {
	var rules []Rule
	for _, r := range p.Rules {
		if len(r.Sources) == 0 || r.isFrom(source) {
			rules = append(rules, r)
		}
	}

	var first Signer
	for i, f := range files {
		s, err := p.signer(rules, f, read)
		switch {
		case err != nil && (errors.Is(err, ErrInvalid) || p.requires(source)):
			return Signer{}, fmt.Errorf("%s: %w", f.Name, err)
		case err != nil && !errors.Is(err, ErrUnsigned) && !errors.Is(err, ErrUntrusted):
			return Signer{}, fmt.Errorf("%s: %w", f.Name, err)
		case i == 0:
			first = s
		case s != first && first != Signer{}:
			return Signer{}, fmt.Errorf("%s: %w: the signer of the module (%v) has to sign it too", f.Name, ErrUnsigned, first)
		}
	}
	return first, nil
}

// requires reports whether every plugin from a source has to be signed.
func (p *Policy) requires(source string) bool {
	return p.Require || slices.ContainsFunc(p.Rules, func(r Rule) bool { return len(r.Plugins) == 0 && r.isFrom(source) })
}

// isFrom reports whether the rule lists a source.
func (r *Rule) isFrom(source string) bool {
	source = absolute(source)
	return slices.ContainsFunc(r.Sources, func(s string) bool {
		return absolute(s) == source || strings.HasSuffix(s, "/") && strings.HasPrefix(source, absolute(s)+"/")
	})
}

// absolute returns a folder as an absolute path, or a URL, without a slash at the end.
func absolute(source string) string {
	if strings.Contains(source, "://") {
		return strings.TrimSuffix(source, "/")
	}
	path, err := filepath.Abs(source)
	if err != nil { // there is no working directory
		return source
	}
	return path
}

// names reports whether the rule lists a plugin.
func (r *Rule) names(plugin string) bool {
	return slices.ContainsFunc(r.Plugins, func(pattern string) bool {
		ok, _ := path.Match(pattern, plugin)
		return ok
	})
}

// Check returns s, the signer that [Policy.Signer] has found, if the operator trusts it for
// this plugin name and source, and otherwise the zero Signer. If the plugin requires a
// signature, the error then matches [ErrUnsigned] or [ErrUntrusted].
func (p *Policy) Check(plugin, source string, s Signer) (Signer, error) {
	var special, general []Rule
	for _, r := range p.Rules {
		switch {
		case !r.special():
			general = append(general, r)
		case (len(r.Plugins) == 0 || r.names(plugin)) && (len(r.Sources) == 0 || r.isFrom(source)):
			special = append(special, r)
		}
	}

	apply := general
	if special != nil {
		apply = special
	}
	switch required := p.Require || special != nil; {
	case slices.ContainsFunc(apply, func(r Rule) bool { return r.is(s) }):
		return s, nil
	case !required:
		return Signer{}, nil
	case s == Signer{}:
		return s, fmt.Errorf("%w, but the plugin %q must be", ErrUnsigned, plugin)
	}
	which := "which"
	if s.Sigstore != (Identity{}) {
		which = "who"
	}
	return Signer{}, Untrusted("signed by %v, %s is not trusted with the plugin %q", s, which, plugin)
}

// is reports whether the rule trusts a signer.
func (r *Rule) is(s Signer) bool {
	switch {
	case s == Signer{}:
		return false
	case r.Minisign != "":
		key, err := ParseMinisignKey(r.Minisign)
		return err == nil && s == Signer{Minisign: key.String()}
	case r.Key != "":
		der, err := ParseKey(r.Key)
		return err == nil && s == OfKey(der)
	}
	return s.Sigstore.Issuer == r.Sigstore.Issuer && Matches(r.Sigstore.Identity, s.Sigstore.Identity)
}

// Matches reports whether an identity matches a pattern. In the pattern, * matches any
// characters.
func Matches(pattern, identity string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == identity
	}
	if !strings.HasPrefix(identity, first) {
		return false
	}

	identity = identity[len(first):]
	parts := strings.Split(rest, "*")
	for _, part := range parts[:len(parts)-1] { // as early as possible leaves most for the others
		at := strings.Index(identity, part)
		if at < 0 {
			return false
		}
		identity = identity[at+len(part):]
	}
	return strings.HasSuffix(identity, parts[len(parts)-1])
}

// signer returns the signer of a file. The error matches [ErrUnsigned], [ErrUntrusted] or
// [ErrInvalid], or is the error of reading a signature.
func (p *Policy) signer(rules []Rule, f File, read func(name string) ([]byte, error)) (Signer, error) {
	untrusted := error(nil)
	for _, ending := range Endings {
		text, err := read(f.Name + ending)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Signer{}, fmt.Errorf("%s: %w", f.Name+ending, err)
		}

		var s Signer
		if ending == MinisignEnding {
			s, err = minisignSigner(rules, f, text)
		} else {
			s, err = p.bundleSigner(rules, f, text)
		}
		switch {
		case err == nil:
			return s, nil
		case !errors.Is(err, ErrUntrusted):
			return Signer{}, err
		}
		untrusted = err
	}

	if untrusted != nil {
		return Signer{}, untrusted
	}
	return Signer{}, ErrUnsigned
}

func minisignSigner(rules []Rule, f File, text []byte) (Signer, error) {
	s, err := parseMinisign(text)
	if err != nil {
		return Signer{}, err
	}

	var invalid error
	for _, r := range rules {
		var key minisign.PublicKey
		if r.Minisign == "" || key.UnmarshalText([]byte(r.Minisign)) != nil || key.ID() != s.KeyID {
			continue
		}
		if invalid = checkMinisign(key, s, f.Data); invalid == nil {
			return Signer{Minisign: key.String()}, nil
		}
	}
	if invalid != nil {
		return Signer{}, invalid
	}
	return Signer{}, Untrusted("signed with the minisign key %s, which is not trusted", KeyID(s.KeyID))
}

// bundleSigner tries the rules in order. A bundle that does not satisfy one rule may satisfy
// another.
func (p *Policy) bundleSigner(rules []Rule, f File, bundle []byte) (Signer, error) {
	err := Untrusted("signed with a Sigstore bundle, and no issuer, identity or key of one is trusted")
	for _, r := range rules {
		if r.Minisign != "" || p.Bundles == nil {
			continue
		}
		s, wrong := p.Bundles.Check(bundle, f.Data, r)
		if wrong == nil {
			return s, nil
		}
		if !errors.Is(err, ErrInvalid) {
			err = wrong
		}
	}
	return Signer{}, err
}
