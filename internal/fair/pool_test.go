package fair_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/fair"
)

func TestPool(t *testing.T) {
	p := fair.NewPool(8, 4)
	take := func(who string, n, limit int) {
		t.Helper()
		got, ok := p.Take(who, n)
		require.Equal(t, limit == 0, ok)
		require.Equal(t, limit, got)
	}
	take("ana", 4, 0)
	take("ana", 1, p.Each())
	take("bo", 3, 0)
	take("cy", 2, p.Max())
	take("cy", 1, 0)
	require.Equal(t, 8, p.Used())
	take("dee", 0, 0)
	take("dee", 1, p.Max())
	p.Give("ana", 4)
	take("ana", 5, p.Each())
	take("dee", 4, 0)
	p.Give("dee", 4)
	p.Give("bo", 3)
	p.Give("cy", 1)
	require.Zero(t, p.Used())
}

func TestPoolIsConcurrent(t *testing.T) {
	p := fair.NewPool(16, 4)
	var all sync.WaitGroup
	for i := range 64 {
		who := fmt.Sprint(i % 8)
		all.Go(func() {
			for range 200 {
				if _, ok := p.Take(who, 1+i%3); ok {
					require.LessOrEqual(t, p.Used(), p.Max())
					p.Give(who, 1+i%3)
				}
			}
		})
	}
	all.Wait()
	require.Zero(t, p.Used())
	for i := range 8 { // nobody is left with a place
		_, ok := p.Take(fmt.Sprint(i), 4)
		require.Equal(t, i < 4, ok)
	}
}

func TestPerClient(t *testing.T) {
	for n, most := range map[int]int{1: 1, 2: 1, 3: 2, 4: 3, 5: 3, 64: 48} {
		require.Equal(t, most, fair.PerClient(n))
	}
}

func TestClientOf(t *testing.T) {
	for session, client := range map[string]string{"default": "default", "ana/default": "ana/", "ana/other": "ana/", "ana": "ana", "": ""} {
		require.Equal(t, client, fair.ClientOf(session), session)
	}
}

func TestTakeBelow(t *testing.T) {
	p := fair.NewPool(8, 4)
	for _, who := range []string{"ana", "ana", "ana", "bo", "bo", "bo"} {
		_, ok := p.TakeBelow(6, who, 1)
		require.True(t, ok)
	}
	limit, ok := p.TakeBelow(6, "cy", 1)
	require.False(t, ok)
	require.Equal(t, 6, limit)
	_, ok = p.Take("operator", 2)
	require.True(t, ok, "what is kept is for those who need not leave it")
}

func TestOverdraw(t *testing.T) {
	p := fair.NewPool(8, 4)
	room := func(who string, limit int) {
		t.Helper()
		got, ok := p.Room(8, who)
		require.Equal(t, limit == 0, ok)
		require.Equal(t, limit, got)
	}
	p.Overdraw("ana", 3)
	room("ana", 0)
	p.Overdraw("ana", 30)
	room("ana", p.Each())
	require.Equal(t, 4, p.Used(), "the others have as many places as if she had kept to hers")
	p.Overdraw("bo", 3)
	p.Overdraw("cy", 1)
	room("bo", p.Max())
	room("dee", 0) // a client that holds nothing may take something
	p.Give("ana", 3)
	require.Equal(t, 8, p.Used())
	p.Give("ana", 29)
	require.Equal(t, 5, p.Used())
	room("ana", 0)
	p.Give("ana", 1)
	p.Give("bo", 3)
	p.Give("cy", 1)
	require.Zero(t, p.Used())
}
