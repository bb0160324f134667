package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/internal/signature"
	"github.com/toolhost/toolhost/plugins"
)

func verifyCommand(a *app) *cobra.Command {
	var signer signature.Rule
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Verify who signed a plugin file",
		Long: `Verify who signed a plugin file: one of those whom the setting trust names, or the one
that flags name. The signature is the file FILE.minisig, or the bundle of Sigstore
FILE.sigstore.json. The manifest next to a plugin must have the same signer. The exit
code is 4 if nobody signed it whom you trust, or if the file has changed since.`,
		Example: `  toolhost verify plugin.wasm
  toolhost verify --minisign acme.key.pub plugin.wasm
  toolhost verify --trusted-root trusted_root.json --issuer https://token.actions.githubusercontent.com \\
    --identity 'https://github.com/acme/tools/*' plugin.wasm`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			policy, err := a.config.policyOf(signer)
			if err != nil {
				return err
			}
			return verifyFile(&a.ui, policy, args[0])
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&signer.Minisign, "minisign", "", "public `key` of minisign that must have signed it, or the file with it")
	flags.StringVar(&signer.Key, "key", "", "`file` with the public key in PEM of a bundle of Sigstore")
	flags.StringVar(&signer.Sigstore.Issuer, "issuer", "", "`URL` of the issuer that has certified the identity")
	flags.StringVar(&signer.Sigstore.Identity, "identity", "", "`identity` that must have signed it, in which * stands for any characters")
	flags.String("trusted-root", "", "`file` with the trusted root of Sigstore")
	flags.Bool("json", false, "print JSON")
	return cmd
}

// policyOf returns a policy that trusts the signer given by flags, or else the signers in
// the configuration. Keys are files, or minisign keys as text.
func (c *loadedConfig) policyOf(signer signature.Rule) (*signature.Policy, error) {
	policy := c.trust
	policy.Require = true
	if reflect.DeepEqual(signer, signature.Rule{}) {
		if len(policy.Rules) == 0 {
			return nil, &usageError{errors.New("trust names no signer"), "name the public key, or its file, with --minisign"}
		}
		return &policy, nil
	}

	if text, err := readBounded(signer.Minisign, maxKey); err == nil {
		signer.Minisign = string(text)
	}
	if signer.Key != "" {
		text, err := readBounded(signer.Key, maxKey)
		if err != nil {
			return nil, err
		}
		signer.Key = string(text)
	}
	for key, problem := range signer.Check() {
		return nil, &usageError{fmt.Errorf("%s%w", map[string]string{"minisign": "--minisign: ", "key": "--key: ", "sigstore": "--issuer and --identity: "}[key], problem), ""}
	}
	if signer.Sigstore != (signature.Identity{}) && c.trustedRoot == "" {
		return nil, &usageError{errors.New("no trusted root of Sigstore"), "name its file with --trusted-root, or in trusted_root of the configuration"}
	}
	policy.Rules = []signature.Rule{signer}
	return &policy, nil
}

// describeSignature says who signed a plugin, or why nobody did. It returns nothing if
// the configuration trusts no signers.
func (c *loadedConfig) describeSignature(p *plugins.Plugin, name string) string {
	if len(c.trust.Rules) == 0 {
		return ""
	}
	policy := c.trust
	policy.Require = true
	signer, err := signerOf(&policy, name)
	if err == nil {
		signer, err = policy.Check(p.Manifest.Name, filepath.Dir(name), signer)
	}
	if err != nil {
		return oneLine(err.Error())
	}
	return "by " + oneLine(signer.String())
}

// verification is the output of verify.
type verification struct {
	File   string           `json:"file"`
	Signer signature.Signer `json:"signer,omitzero"`
	Error  string           `json:"error,omitempty"`
}

// verifyFile prints who signed a file.
func verifyFile(u *ui, policy *signature.Policy, name string) error {
	signer, err := signerOf(policy, name)
	v := verification{File: name, Signer: signer}
	if err != nil {
		v.Error = err.Error()
	}
	return u.answer(v, err, func() {
		if err == nil {
			u.printf("%s: signed by %s\n", oneLine(name), oneLine(signer.String()))
		}
	})
}

// signerOf returns the signer of a file and, if the file is a plugin, of the manifest
// next to it, who must be the same.
func signerOf(policy *signature.Policy, name string) (signature.Signer, error) {
	dir := filepath.Dir(name)
	files, err := signedFiles(name)
	if err != nil {
		return signature.Signer{}, err
	}
	for i := range files {
		files[i].Name = filepath.Base(files[i].Name)
	}

	return policy.Signer(dir, files, func(name string) ([]byte, error) {
		return readBounded(filepath.Join(dir, name), signature.MaxSize)
	})
}

// readBounded reads a regular file that has at most most bytes.
func readBounded(name string, most int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: expected a file", name)
	}
	if err != nil {
		return nil, err
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s: the file has more than %d bytes, the limit", name, most)
	}
	return data, err
}
