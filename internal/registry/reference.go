// Package registry pulls plugins from OCI registries and pushes them there. It keeps pulled
// plugins in a store on disk, by their SHA-256.
//
// The package does not trust a registry's responses. It limits their size, number and time,
// and never stores content whose digest differs from the one that was requested.
package registry

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	oras "oras.land/oras-go/v2/registry"
)

// Scheme is the prefix of all references.
const Scheme = "oci://"

// maxReference is the maximum length of a reference, in bytes: a repository name can have
// 255, and a tag 128.
const maxReference = 600

// Reference names a plugin in a registry. It has a tag, a digest or both.
type Reference struct {
	Registry   string        // HOST or HOST:PORT
	Repository string        // path of the repository, such as acme/web
	Tag        string        // tag; may be empty if there is a digest
	Digest     digest.Digest // digest of the manifest; if empty, the tag has to be resolved
}

// IsReference reports whether a source has the prefix of a reference. [ParseReference] may
// still refuse the source.
func IsReference(source string) bool { return strings.HasPrefix(source, Scheme) }

// ParseReference parses oci://HOST[:PORT]/NAME:TAG, with @sha256:HEX instead of the tag or
// after it. There is no default registry and no default tag. The error matches
// [ErrReference].
func ParseReference(source string) (Reference, error) {
	ref, err := parse(source)
	if err != nil {
		return Reference{}, fmt.Errorf("%.100q: %w: %v", source, ErrReference, err)
	}
	return ref, nil
}

func parse(source string) (ref Reference, err error) {
	rest, ok := strings.CutPrefix(source, Scheme)
	if !ok {
		return ref, fmt.Errorf("it does not begin with %s", Scheme)
	}
	if len(source) > maxReference {
		return ref, fmt.Errorf("it has %d bytes, expected at most %d", len(source), maxReference)
	}

	rest, sum, pinned := strings.Cut(rest, "@")
	host, name, ok := strings.Cut(rest, "/")
	if !ok {
		return ref, fmt.Errorf("expected %sHOST/NAME:TAG", Scheme)
	}
	name, tag, tagged := strings.Cut(name, ":")
	ref = Reference{Registry: host, Repository: name, Tag: tag, Digest: digest.Digest(sum)}

	if err := checkHost(host); err != nil {
		return ref, err
	}
	if err := (oras.Reference{Repository: name}).ValidateRepository(); err != nil {
		return ref, fmt.Errorf("%q is not the name of a repository: lower-case letters, digits and . _ - between slashes", name)
	}
	if tagged && (oras.Reference{Reference: tag}).ValidateReferenceAsTag() != nil {
		return ref, fmt.Errorf("%q is not a tag", tag)
	}
	if pinned && !isSHA256(ref.Digest) {
		return ref, fmt.Errorf("%q is not a digest: expected sha256: and 64 hexadecimal digits", sum)
	}
	if !tagged && !pinned {
		return ref, fmt.Errorf("it has no tag: name one, such as %s:1.0, or a digest", source)
	}
	return ref, nil
}

// checkHost refuses texts that cannot be the host of a registry, and texts that look like
// the first part of a name: other programs take "acme/web" to mean a repository at
// docker.io.
func checkHost(host string) error {
	err := (oras.Reference{Registry: host}).ValidateRegistry()
	name, _, splitErr := net.SplitHostPort(host)
	if splitErr != nil {
		name = host
	}

	switch {
	case err != nil || strings.ContainsFunc(host, func(r rune) bool { return r > '~' || r <= ' ' }):
		return fmt.Errorf("%q is not the host of a registry", host)
	case host != strings.ToLower(host):
		return fmt.Errorf("the registry %q has upper-case letters: write %s", host, strings.ToLower(host))
	case splitErr != nil && name != "localhost" && !strings.ContainsAny(name, ".["):
		return fmt.Errorf("%q is not a registry: name its host, such as ghcr.io/%s", host, host)
	}
	return nil
}

func isSHA256(d digest.Digest) bool {
	return d.Validate() == nil && d.Algorithm() == digest.SHA256
}

// String returns the reference in the form in which it is written.
func (r Reference) String() string {
	text := Scheme + r.Registry + "/" + r.Repository
	if r.Tag != "" {
		text += ":" + r.Tag
	}
	if r.Digest != "" {
		text += "@" + string(r.Digest)
	}
	return text
}

// At returns the reference to a manifest in the same repository, by the manifest's digest
// alone.
func (r Reference) At(d digest.Digest) Reference {
	return Reference{Registry: r.Registry, Repository: r.Repository, Digest: d}
}

// Name returns the last part of the repository's name.
func (r Reference) Name() string { return path.Base(r.Repository) }

// stored returns the reference under which the store keeps the plugin: if there is a
// digest, it has no tag.
func (r Reference) stored() Reference {
	if r.Digest != "" {
		return r.At(r.Digest)
	}
	return r
}

// oras returns the reference in the form that the library uses.
func (r Reference) oras() oras.Reference {
	return oras.Reference{Registry: r.Registry, Repository: r.Repository, Reference: cmp.Or(string(r.Digest), r.Tag)}
}

// isLoopback reports whether a host, with or without a port, is this machine.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}
