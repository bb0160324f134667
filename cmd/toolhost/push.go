package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/internal/registry"
	"github.com/toolhost/toolhost/internal/signature"
)

func pushCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "push FILE oci://HOST/NAME:TAG",
		Short: "Push a plugin file to a registry",
		Long: `Push a plugin file to a registry, as the Wasm OCI artifact of the CNCF: one layer,
which is the module. A manifest next to the file, or one that the plugin describes, is
sealed into it. Signatures next to it are attached as referrers. Credentials
are those of docker login.`,
		Example: `  toolhost push wordcount.wasm oci://ghcr.io/acme/wordcount:1.0`,
		Args:    cobra.ExactArgs(2),
		RunE:    func(cmd *cobra.Command, args []string) error { return pushPlugin(cmd.Context(), a, args[0], args[1]) },
	}
}

// pushPlugin pushes a plugin file and its signatures.
func pushPlugin(ctx context.Context, a *app, name, to string) error {
	ref, err := registry.ParseReference(to)
	if err != nil {
		return err
	}
	r, err := openRegistries(a)
	if err != nil {
		return err
	}
	wasm, manifest, err := sealManifest(ctx, a, name)
	if err != nil {
		return err
	}
	signatures, err := signaturesOf(name, wasm)
	if err != nil {
		return err
	}

	annotations := map[string]string{ocispec.AnnotationTitle: manifest.Name, ocispec.AnnotationVersion: manifest.Version}
	if manifest.Description != "" {
		annotations[ocispec.AnnotationDescription] = manifest.Description
	}
	digest, err := r.client.Push(ctx, ref, wasm, annotations)
	if err != nil {
		return err
	}
	for ending, document := range signatures {
		if _, err := r.client.Attach(ctx, ref.At(digest), signatureTypes[ending], document, nil); err != nil {
			return err
		}
	}
	a.printf("pushed %s %s: %s\n", manifest.Name, manifest.Version, ref.At(digest))
	return nil
}

// signaturesOf returns the signatures next to a plugin's file, by their file name
// endings. They cover the file as it is, so it must be pushed unchanged.
func signaturesOf(name string, pushed []byte) (map[string][]byte, error) {
	found := map[string][]byte{}
	for ending := range signatureTypes {
		document, err := readBounded(name+ending, signature.MaxSize)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found[ending] = document
	}

	wasm, err := os.ReadFile(name)
	if err == nil && len(found) > 0 && !bytes.Equal(wasm, pushed) {
		err = &usageError{fmt.Errorf("%s is signed without its manifest, which push would seal into it", name), "seal it first with toolhost seal, and sign that"}
	}
	return found, err
}
