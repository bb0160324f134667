package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// If many owners have few records each, no owner loses all of them to make room for one
// new record.
func TestRoomOfManyOwners(t *testing.T) {
	const owners, records = 40, 64
	l := New(engine.Quota{Max: owners * records * engine.RecordOverhead, Each: records * engine.RecordOverhead})
	for i := range owners {
		l.Add(string(rune('a'+i)), records*engine.RecordOverhead, records*engine.RecordOverhead)
	}
	e, err := l.Room("new", engine.RecordOverhead)
	require.NoError(t, err)
	took := 0
	for range records {
		if e.Take("a", engine.RecordOverhead) {
			took++
		}
	}
	require.True(t, e.Enough())
	require.Equal(t, 1+records/20, took)
}

// The bytes that an owner uses beyond its share are not counted, so evicting them frees
// nothing: they have to be evicted in addition to the bytes that are needed.
func TestRoomOfWhatIsNotCounted(t *testing.T) {
	l := New(engine.Quota{Max: 10 * engine.RecordOverhead, Each: 4 * engine.RecordOverhead})
	for owner, records := range map[string]int64{"a": 6, "b": 4, "c": 2} {
		l.Add(owner, records*engine.RecordOverhead, records*engine.RecordOverhead)
	}
	e, err := l.Room("new", engine.RecordOverhead)
	require.NoError(t, err)
	took := 0
	for range 6 {
		if e.Take("a", engine.RecordOverhead) {
			took++
		}
	}
	require.True(t, e.Enough())
	require.Equal(t, 3, took)
}
