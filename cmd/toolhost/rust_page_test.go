package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRustPage does what docs/rust.md says.
func TestRustPage(t *testing.T) {
	p := newReader(t, "rust.md")
	p.env = append(p.env, crates(t)...)
	p.follow()
}

// crates is an environment of cargo with the toolchain and the crates of this user. What it
// has not is fetched, so the page is followed where it is asked for: see .ci/languages.sh.
func crates(t *testing.T) []string {
	if os.Getenv("RUST_PAGE") == "" {
		t.Skip("set RUST_PAGE to build plugins in Rust. It takes cargo (https://rustup.rs, then: rustup target add " + rustTarget + ") and crates of crates.io")
	}
	home, err := os.UserHomeDir()
	require.NoError(t, err)
	var env []string
	for name, dir := range map[string]string{"CARGO_HOME": ".cargo", "RUSTUP_HOME": ".rustup"} {
		if os.Getenv(name) == "" {
			env = append(env, name+"="+filepath.Join(home, dir))
		}
	}
	return env
}
