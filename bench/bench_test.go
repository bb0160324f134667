package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/toolhost/toolhost/bench/internal/engine"
)

// TestDigests holds that the workloads are the files that were built.
func TestDigests(t *testing.T) {
	sums, err := os.ReadFile("workloads/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for lines := bufio.NewScanner(bytes.NewReader(sums)); lines.Scan(); n++ {
		want, name, _ := strings.Cut(lines.Text(), "  ./")
		wasm, err := files.ReadFile("workloads/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(wasm); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s: another file than was built", name)
		}
	}
	if n < 10 {
		t.Errorf("%d digests", n)
	}
}

// TestWorkloads holds that all ways of running a workload come to the same.
func TestWorkloads(t *testing.T) {
	for _, w := range workloads {
		if w.lang == "Go" {
			continue // takes seconds to build and compile
		}
		if _, err := measure(&loader{}, w, engine.All, 1); err != nil {
			t.Errorf("%s: %v", w.name, err)
		}
	}
}
