package abi

import _ "embed"

//go:embed manifest.schema.json
var manifestSchema string

// ManifestSchema returns the published JSON Schema (2020-12) of a manifest, for
// editors and for sidecars written by hand. [DecodeManifest] accepts what it
// accepts, but for rules no schema can say (names that repeat or get too long,
// references inside a tool's own schemas).
func ManifestSchema() string { return manifestSchema }
