package background

import (
	"bytes"
	"context"
	"fmt"
	"testing"
)

func BenchmarkSink(b *testing.B) {
	line := []byte("a line of output as tools write it, some eighty characters long, with an end....\n")
	for name, chunk := range map[string][]byte{"32KiB": bytes.Repeat(line, 400), "line": line} {
		b.Run("stdout/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			out := NewSink(0).Stdout()
			for b.Loop() {
				_, _ = out.Write(chunk)
			}
		})
		b.Run("stderr/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			out := NewSink(0).Stderr()
			for b.Loop() {
				_, _ = out.Write(chunk)
			}
		})
	}
}

// BenchmarkSinkGigabyte writes 1 GiB into one sink; B/op is all the memory it takes.
func BenchmarkSinkGigabyte(b *testing.B) {
	chunk := bytes.Repeat([]byte("0123456789abcde\n"), 2048) // 32 KiB
	b.SetBytes(1 << 30)
	b.ReportAllocs()
	for b.Loop() {
		out := NewSink(0).Stdout()
		for range 1 << 15 {
			_, _ = out.Write(chunk)
		}
	}
}

func BenchmarkSpawn(b *testing.B) {
	m, err := New(b.Context(), Config{PerSession: 1 << 20, PerHost: 1 << 20, Executor: func(context.Context, Run, *Sink) (Outcome, error) {
		return Outcome{}, nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		if _, err := m.Spawn(b.Context(), fmt.Sprint(i%64), SpawnRequest{Tool: "tool"}); err != nil {
			b.Fatal(err)
		}
		i++
	}
	if err := m.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkCheck(b *testing.B) {
	m, err := New(b.Context(), Config{Executor: func(ctx context.Context, _ Run, sink *Sink) (Outcome, error) {
		_, _ = sink.Stdout().Write(bytes.Repeat([]byte("a line of output\n"), 1000))
		<-ctx.Done()
		return Outcome{}, ctx.Err()
	}})
	if err != nil {
		b.Fatal(err)
	}
	s, err := m.Spawn(b.Context(), "session", SpawnRequest{Tool: "tool"})
	if err != nil {
		b.Fatal(err)
	}
	cursor := ""
	for name, after := range map[string]*string{"tail": new(string), "cursor": &cursor} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				checked, err := m.Check(b.Context(), "session", CheckRequest{IDs: []string{s.ID}, Cursor: *after})
				if err != nil {
					b.Fatal(err)
				}
				cursor = checked.Reports[0].Output.Cursor
			}
		})
	}
	if _, err := m.Stop(b.Context(), "session", s.ID, StopRequest{Force: true}); err != nil {
		b.Fatal(err)
	}
	if err := m.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}
