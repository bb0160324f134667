package values

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
)

// BenchmarkKV measures kv.get and kv.set of 1 KiB as the host serves them, and reports
// them as ratios to a map with a mutex and to the engine alone, in the same run.
func BenchmarkKV(b *testing.B) {
	value := json.RawMessage(fmt.Sprintf(`{"text":"%01000d"}`, 7))
	disk, err := sqlite.Open(b.Context(), b.TempDir(), sqlite.Config{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, disk.Close()) })

	for name, e := range map[string]engine.Engine{"memory": memory.New(), "sqlite": disk} {
		scope, limit := kvScope("bench", ""), engine.ValueLimit{Count: host.DefaultKVKeys, Bytes: host.DefaultKVBytes}
		served := Calls{Engine: e}.KV("bench", host.KV{Mode: abi.StoreWrite}, host.Call{})
		for i := range 100 {
			_, err := served.Set(b.Context(), fmt.Sprint("key-", i), value, host.AnyVersion, 0)
			require.NoError(b, err)
		}
		var mu sync.Mutex
		plain := map[string][]byte{"key-7": value}

		timed := func(sum *time.Duration, do func() error) {
			began := time.Now()
			err := do()
			*sum += time.Since(began)
			require.NoError(b, err)
		}
		ratios := func(b *testing.B, ours, raw, mapped time.Duration) {
			b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N), "ns/call")
			b.ReportMetric(float64(ours)/float64(raw), "of-engine")
			b.ReportMetric(float64(ours)/float64(mapped), "of-map")
		}
		b.Run("get/"+name, func(b *testing.B) {
			var ours, raw, mapped time.Duration
			for b.Loop() {
				timed(&ours, func() error { _, err := served.Get(b.Context(), "key-7"); return err })
				timed(&raw, func() error { _, err := e.Value(b.Context(), scope, "key-7"); return err })
				timed(&mapped, func() error { mu.Lock(); defer mu.Unlock(); _ = append([]byte{}, plain["key-7"]...); return nil })
			}
			ratios(b, ours, raw, mapped)
		})
		b.Run("set/"+name, func(b *testing.B) {
			var ours, raw, mapped time.Duration
			for b.Loop() {
				timed(&ours, func() error { _, err := served.Set(b.Context(), "key-7", value, host.AnyVersion, 0); return err })
				timed(&raw, func() error {
					_, err := e.PutValue(b.Context(), scope, engine.Value{Key: "key-7", Data: value, Version: engine.AnyVersion}, limit)
					return err
				})
				timed(&mapped, func() error { mu.Lock(); defer mu.Unlock(); plain["key-7"] = append([]byte{}, value...); return nil })
			}
			ratios(b, ours, raw, mapped)
		})
	}
}
