package abi

import _ "embed"

//go:embed manifest.schema.json
var manifestSchema string

// ManifestSchema returns the published JSON Schema (2020-12) of a manifest, for editors
// and sidecars written by hand. [DecodeManifest] also checks what a schema cannot
// express: duplicate names and names that are too long.
func ManifestSchema() string { return manifestSchema }
