//go:build unix

package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkMask masks 10 MB with three secrets, of texts that are made to be slow.
// Without a secret nothing is done.
func BenchmarkMask(b *testing.B) {
	secrets := []string{"s3cr3t-Token/+Value.42", "sk-proj-4fAb12ZzQ0aaaaaaaaaaaaaaaaaaab", `p\xe4ssw&%rt!~1/x`}
	var m masker
	for i, value := range secrets {
		m.add(fmt.Sprint("key", i), value)
	}
	near := func(value string) string { return value[:len(value)-1] + "\x00" }

	texts := map[string]string{
		"plain": `{"name":"value","n":12345,"url":"https://example.com/x?y=z"},`, "percent": "%", "backslash": `\`, "ampersand": "&",
		"escape": "%73", "backslash-n": `\n`, "json": `\u0073`, "json-umlaut": `\u00e4`, "entity": "&#115;", "entity-digits": "&#00000000", "entity-name": "&amp;", "mixed": `%\&`,
		"near": near(secrets[0]), "near-all": near(secrets[0]) + near(secrets[1]) + near(secrets[2]), "near-percent": strings.ReplaceAll(url.QueryEscape(near(secrets[0])), "s", "%73"),
		"near-json": strings.ReplaceAll(near(secrets[0]), "3", `\u0033`), "prefix": "s3", "prefixes": "s3sk", "letters": "a", "near-letters": secrets[1][:len(secrets[1])-1],
		"base64": base64.StdEncoding.EncodeToString([]byte(near(secrets[0]))), "base64-random": base64.StdEncoding.EncodeToString(random(3 << 10)), "random": string(random(4 << 10)),
		"hex": hex.EncodeToString([]byte(near(secrets[0]))), "lines": "c\n", "spaces": "c" + strings.Repeat(" ", 20), "found": secrets[0],
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		b.Run(name, func(b *testing.B) {
			text := bytes.Repeat([]byte(texts[name]), 10_000_000/len(texts[name]))
			b.SetBytes(int64(len(text)))
			begin := processorTime(b)
			for b.Loop() {
				_, err := m.within(b.Context(), text, math.MaxInt64)
				require.NoError(b, err)
			}
			b.ReportMetric(float64((processorTime(b)-begin).Microseconds())/1e3/float64(b.N), "cpu-ms/10MB")
		})
	}
}

// BenchmarkMaskSecrets prepares the pass for three secrets, as each call with a secret does.
func BenchmarkMaskSecrets(b *testing.B) {
	for b.Loop() {
		var m masker
		for i, value := range []string{"s3cr3t-Token/+Value.42", "pässwört!~1/x-longer", "ghp_0123456789abcdefghij"} {
			m.add(fmt.Sprint("key", i), value)
		}
	}
}

func random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	return data
}

// processorTime is what the process has used.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
