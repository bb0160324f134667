package main

import (
	"encoding/json"
	"testing"

	"github.com/toolhost/toolhost/host"
)

// TestSame: Toolhost answers what Extism answers, for each public test plugin that needs
// nothing of its host but WASI, and inputs of many sizes.
func TestSame(t *testing.T) {
	h, err := host.New(t.Context(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(t.Context())
	for _, c := range []struct{ file, function string }{
		{"alloc", "run_test"}, {"config", "run_test"}, {"count_vowels", "count_vowels"}, {"count_vowels_std", "_start"},
		{"fail", "run_test"}, {"hello", "run_test"}, {"hello_haskell", "testing"}, {"input_offset", "input_offset_length"},
		{"log", "run_test"}, {"println", "run_test"}, {"replace", "run_test"}, {"std_command", "_start"}, {"var", "run_test"},
		{"fs", "run_test"}, {"fs_std", "run_test"}, {"read_write", "try_read"}, {"exit", "_start"}, {"sleep", "_start"},
	} {
		t.Run(c.file, func(t *testing.T) {
			p, err := load(t.Context(), h, c.file, c.function)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close(t.Context())
			for _, size := range []int{0, 1, 7, 8, 9, 16, 1000, 1 << 16, 1<<20 + 3} {
				args, _ := json.Marshal(map[string]string{"text": input(size)})
				want, err := p.clean(t.Context(), input(size))
				if err != nil {
					t.Fatal(err)
				}
				got, err := p.toolhost(t.Context(), args)
				if err != nil {
					t.Fatal(size, err)
				}
				if err := same(got, want); err != nil {
					t.Error(size, err)
				}
			}
		})
	}
}
