package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/pluginbuild"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
	"github.com/toolhost/toolhost/plugins"
)

func sealCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "seal FILE",
		Short: "Write the manifest of a plugin into its file",
		Long: `Write the manifest of a plugin into its file: the one next to it, or else the one that
the plugin describes, which takes compiling it. A sealed plugin is loaded at once, and
none of its code runs for that. toolhost build seals what it builds.

The digest of the file changes: sign it and accept it in a lock afterwards.`,
		Example: `  toolhost seal wordcount.wasm`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return sealFile(cmd.Context(), a, args[0]) },
	}
}

func sealFile(ctx context.Context, a *app, name string) error {
	wasm, manifest, err := sealManifest(ctx, a, name)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if bytes.Equal(wasm, before) {
		a.printf("%s needs no manifest of its own\n", oneLine(name))
		return nil
	}

	if err := pluginbuild.Replace(name, wasm); err != nil {
		return err
	}
	a.printf("%s has the manifest of %s %s\n", oneLine(name), manifest.Name, manifest.Version)
	for _, sidecar := range plugins.Sidecars(os.DirFS(filepath.Dir(name)), filepath.Base(name)) {
		a.printf("remove %s, which is no longer read\n", oneLine(filepath.Join(filepath.Dir(name), sidecar)))
	}
	return nil
}

// sealManifest returns a plugin file with its sidecar manifest embedded in it. It
// fails if the plugin cannot be loaded.
func sealManifest(ctx context.Context, a *app, name string) (wasm []byte, manifest *abi.Manifest, err error) {
	if filepath.Ext(name) != ".wasm" {
		return nil, nil, &usageError{fmt.Errorf("%s: expected a file that ends in .wasm", name), ""}
	}
	if wasm, err = os.ReadFile(name); err != nil {
		return nil, nil, err
	}

	err = a.withUngranted(ctx, name, func(_ *host.Host, p *plugins.Plugin, problems []plugins.Problem) (err error) {
		a.warnOf(fileProblems(problems))
		manifest = p.Manifest

		wasm, err = sealed(p, wasm)
		return err
	})
	return wasm, manifest, err
}

// sealed returns the content of a plugin's file, with the manifest embedded in it.
func sealed(p *plugins.Plugin, wasm []byte) ([]byte, error) {
	if p.Info.Manifest != nil || p.Info.MCP != "" {
		return wasm, nil
	}
	data, err := json.Marshal(p.Manifest)
	return wasmbin.AppendCustom(wasm, abi.SectionManifest, data), err
}
