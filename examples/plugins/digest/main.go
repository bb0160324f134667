// Digest is a WASI command: an ordinary program that reads JSON from stdin and
// prints JSON, and that knows nothing about Toolhost. The manifest next to it,
// digest.toolhost.yaml, is what makes it a plugin.
package main

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
)

type request struct {
	Text      string `json:"text"`
	Algorithm string `json:"algorithm"`
}

type response struct {
	Algorithm string `json:"algorithm"`
	Digest    string `json:"digest"` // digest in hex
	Bytes     int    `json:"bytes"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(stdin io.Reader, stdout io.Writer) error {
	in := request{Algorithm: "sha256"}
	if err := json.NewDecoder(stdin).Decode(&in); err != nil {
		return fmt.Errorf("expected JSON on stdin: %w", err)
	}
	algorithms := map[string]func() hash.Hash{"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New}
	newHash, ok := algorithms[in.Algorithm]
	if !ok {
		return fmt.Errorf("unknown algorithm %q", in.Algorithm)
	}
	h := newHash()
	io.WriteString(h, in.Text) // a hash takes everything
	return json.NewEncoder(stdout).Encode(response{in.Algorithm, hex.EncodeToString(h.Sum(nil)), len(in.Text)})
}
