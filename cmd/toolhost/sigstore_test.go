package main

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolhost/toolhost/cmd/toolhost/internal/sigstoretest"
)

// publicInstance is the Sigstore of the scripts.
var publicInstance = sync.OnceValue(func() sigstoretest.Instance { return sigstoretest.New(panics{}) })

// panics reports errors of what no single test is to blame for.
type panics struct{}

func (panics) Errorf(format string, args ...any) {}
func (panics) FailNow()                          { panic("the Sigstore of the scripts") }

// signBundle IDENTITY FILE… signs files with a certificate of Sigstore for an identity of
// https://issuer.example, and writes its trusted root to trusted_root.json.
func signBundle(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: sigstore IDENTITY FILE…")
	}
	s := publicInstance()
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("WORK"), "trusted_root.json"), s.Root(panics{}, true, false), 0o644))
	for _, name := range args[1:] {
		data, err := os.ReadFile(ts.MkAbs(name))
		ts.Check(err)
		bundle := sigstoretest.Text(panics{}, s.Sign(panics{}, args[0], "https://issuer.example", data, time.Now().Add(time.Minute)))
		ts.Check(os.WriteFile(ts.MkAbs(name+".sigstore.json"), bundle, 0o644))
	}
}
