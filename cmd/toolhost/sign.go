package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"aead.dev/minisign"
	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/signature"
	"github.com/toolhost/toolhost/plugins"
)

func signCommand(a *app) *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use:   "sign FILE…",
		Short: "Sign plugin files with a key of minisign",
		Long: `Sign plugin files with a key of minisign. The signature of plugin.wasm is
plugin.wasm.minisig next to it. A manifest next to a plugin is signed too, because
it says what the tools do. minisign makes and verifies the same signatures.

The password of the key is asked for on a terminal, and else read from stdin.`,
		Example: `  toolhost sign new-key acme.key
  toolhost sign --minisign acme.key plugin.wasm
  toolhost verify --minisign acme.key.pub plugin.wasm`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keyFile == "" {
				return &usageError{errors.New("no key"), "name its file with --minisign; toolhost sign new-key FILE makes one"}
			}
			return minisigner{&a.ui}.sign(cmd.Context(), keyFile, args)
		},
	}
	cmd.Flags().StringVar(&keyFile, "minisign", "", "`file` of the secret key, as minisign -G writes it")
	cmd.AddCommand(newKeyCommand(a))
	return cmd
}

// minisigner signs files with minisign keys, and creates such keys. It asks for their
// passwords.
type minisigner struct{ *ui }

// sign signs files, and the manifests next to plugins. It reads everything before it writes
// any signature.
func (m minisigner) sign(ctx context.Context, keyFile string, names []string) error {
	var files []signature.File
	for _, name := range names {
		more, err := signedFiles(name)
		if err != nil {
			return err
		}
		files = append(files, more...)
	}

	key, err := m.secretKey(ctx, keyFile)
	if err != nil {
		return err
	}
	for _, f := range files {
		text := signature.SignMinisign(key, signature.File{Name: filepath.Base(f.Name), Data: f.Data}, time.Now())
		if err := os.WriteFile(f.Name+signature.MinisignEnding, text, 0o644); err != nil {
			return err
		}
		m.printf("signed %s: %s\n", oneLine(f.Name), oneLine(f.Name+signature.MinisignEnding))
	}
	return nil
}

// signedFiles returns a file under its path and, if it is a plugin, the manifests next to it.
func signedFiles(name string) (files []signature.File, err error) {
	dir, base := filepath.Split(name)
	names := []string{base}
	if filepath.Ext(name) == ".wasm" {
		names = append(names, plugins.Sidecars(os.DirFS(filepath.Dir(name)), base)...)
	}
	for _, base := range names {
		data, err := readBounded(dir+base, host.MaxPluginSize)
		if err != nil {
			return nil, err
		}
		files = append(files, signature.File{Name: dir + base, Data: data})
	}
	return files, nil
}

// maxKey is larger than any minisign key file, in bytes.
const maxKey = 16 << 10

// secretKey reads a secret key. If the key has a password, it asks for it.
func (m minisigner) secretKey(ctx context.Context, name string) (key minisign.PrivateKey, err error) {
	text, err := readBounded(name, maxKey)
	if err != nil {
		return key, err
	}
	if !minisign.IsEncrypted(text) {
		if key.UnmarshalText(text) != nil {
			return key, &usageError{fmt.Errorf("%s: expected a secret key of minisign", name), "toolhost sign new-key FILE makes one"}
		}
		return key, nil
	}

	password, err := m.hidden(ctx, "password of "+oneLine(name), maxPassword)
	if err != nil {
		return key, err
	}
	if key, err = minisign.DecryptKey(password, text); err != nil {
		return key, &usageError{fmt.Errorf("%s: the password is wrong, or the key is damaged", name), ""}
	}
	return key, nil
}

// maxPassword is the maximum length of a password, in bytes.
const maxPassword = 1024

func newKeyCommand(a *app) *cobra.Command {
	var open bool
	cmd := &cobra.Command{
		Use:   "new-key FILE",
		Short: "Make a key pair to sign with",
		Long: `Make a key pair to sign with. The secret key is written to FILE, for this user only,
and the public key to FILE.pub, both as minisign writes them. The password of the
secret key is asked for on a terminal, and else read from stdin.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return minisigner{&a.ui}.newKey(cmd.Context(), args[0], open)
		},
	}
	cmd.Flags().BoolVar(&open, "no-password", false, "do not encrypt the secret key")
	return cmd
}

// newKey creates a key pair. If open is set, the secret key is not encrypted.
func (m minisigner) newKey(ctx context.Context, name string, open bool) error {
	for _, name := range []string{name, name + ".pub"} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return &usageError{fmt.Errorf("%s exists", name), "choose another name: a lost key cannot be made again"}
		}
	}

	public, secret, err := minisign.GenerateKey(nil)
	if err != nil {
		return err
	}
	text, err := secret.MarshalText()
	if !open && err == nil {
		text, err = m.encrypt(ctx, secret)
	}
	if err != nil {
		return err
	}
	publicText, err := public.MarshalText()
	if err != nil {
		return err
	}

	for _, f := range []struct {
		name string
		text []byte
		mode fs.FileMode
	}{{name, text, 0o600}, {name + ".pub", publicText, 0o644}} {
		if err := writeNew(f.name, append(f.text, '\n'), f.mode); err != nil {
			return err
		}
	}
	m.printf("secret key: %s\npublic key: %s\n\nto trust it:\ntrust:\n  - minisign: %s\n", oneLine(name), oneLine(name+".pub"), public)
	return nil
}

// encrypt asks for a password, twice on a terminal, and encrypts a key with it.
func (m minisigner) encrypt(ctx context.Context, key minisign.PrivateKey) ([]byte, error) {
	password, err := m.hidden(ctx, "password of the new key", maxPassword)
	if err != nil {
		return nil, err
	}
	if password == "" {
		return nil, &usageError{errors.New("the password is empty"), "--no-password makes a key without one"}
	}

	if m.asks() {
		again, err := m.hidden(ctx, "once more", maxPassword)
		if err != nil {
			return nil, err
		}
		if again != password {
			return nil, &usageError{errors.New("the passwords differ"), ""}
		}
	}
	return minisign.EncryptKey(password, key)
}

// writeNew writes a file that must not exist yet.
func writeNew(name string, data []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}
