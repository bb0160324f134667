package main

import (
	"maps"
	"slices"
	"strconv"

	"github.com/toolhost/toolhost/cmd/toolhost/internal/sigstore"
	"github.com/toolhost/toolhost/internal/signature"
)

func signerSettings(r *signature.Rule) []setting {
	return []setting{
		{"minisign", live, text, &r.Minisign, none, "Public key of minisign."},
		{"sigstore.issuer", live, text, &r.Sigstore.Issuer, none, "URL of the issuer that has certified the identity."},
		{"sigstore.identity", live, text, &r.Sigstore.Identity, none, "Identity of the signer, in which * stands for any characters."},
		{"key", live, text, &r.Key, none, "Public key in PEM, of bundles of Sigstore that were signed with a key."},
		{"plugins", live, list, &r.Plugins, none, "Names of plugins, or patterns, that this signer is for. Such plugins must be signed by it."},
		{"sources", live, folders, &r.Sources, none, "Folders of plugins that this signer is for. What comes from them must be signed by it."},
	}
}

// checkTrust reports signers that cannot be trusted in the way they are
// configured.
func (c configCheck) checkTrust() {
	for i, r := range c.trust.Rules {
		problems := r.Check()
		for _, key := range slices.Sorted(maps.Keys(problems)) {
			at := "trust." + strconv.Itoa(i)
			if key != "" {
				at += "." + key
			}
			c.problem(at, "%v", problems[key])
		}
	}
	c.checkTrustedRoot()
	if c.trust.Require && len(c.trust.Rules) == 0 {
		c.problem("require_signature", "trust names no signer, so no plugin could be served")
	}
}

// maxRoot is the maximum size of a trusted root, in bytes: the one of the public
// instance has 10 kB.
const maxRoot = 1 << 20

// checkTrustedRoot reads the trusted root. It reports a root that cannot be
// used, and signers that need a root if there is none.
func (c configCheck) checkTrustedRoot() {
	verifier := new(sigstore.Verifier)
	if c.trustedRoot != "" {
		var err error
		if verifier.Root, err = readBounded(c.trustedRoot, maxRoot); err == nil {
			err = verifier.CheckRoot()
		}
		if err != nil {
			c.problem("trusted_root", "%s", flat(err))
			return
		}
	}

	c.trust.Bundles = verifier
	for i, r := range c.trust.Rules {
		if r.Sigstore != (signature.Identity{}) && verifier.Root == nil {
			c.problem("trust."+strconv.Itoa(i)+".sigstore", "it needs the trusted root of Sigstore: set trusted_root to a file with it")
		}
	}
}
