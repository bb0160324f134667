package presence

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/wire"
)

// named returns a connection whose client has a name.
func named(name string) wire.ClientConnection { return wire.ClientConnection{Client: name} }

func names(c *Clients) (out []string) {
	for _, one := range c.List() {
		out = append(out, one.Client)
	}
	return out
}

// A client is listed while a request is open, and for half an hour after it, the latest first.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clients
		began := time.Now().UTC()
		leave := c.Begin("a", "ana", named("a"))
		time.Sleep(time.Minute)
		c.Begin("b", "bo", named("b"))()
		require.Equal(t, []string{"b", "a"}, names(&c))
		require.Equal(t, 1, c.List()[1].InFlight)

		time.Sleep(time.Hour)
		require.Equal(t, []string{"a"}, names(&c), "its request is open")
		leave()
		require.Equal(t, wire.ClientConnection{Client: "a", Since: began, LastRequestAt: time.Now().UTC()}, c.List()[0])
		time.Sleep(listedFor + 1)
		require.Empty(t, c.List())

		c.Begin("a", "ana", named("a"))()
		c.Remove("a")
		require.Empty(t, c.List())
	})
}

// A client chooses its name, which is shortened.
func TestLongName(t *testing.T) {
	var c Clients
	c.Begin("a", "ana", named(strings.Repeat("\x1b", 500)))()
	require.LessOrEqual(t, len([]rune(c.List()[0].Client)), maxName)
}

// A client with many connections displaces its own idle ones, and no busy one.
func TestFull(t *testing.T) {
	var c Clients
	c.Begin("quiet", "bo", named("quiet"))()
	for i := range maxListed {
		c.Begin(fmt.Sprint(i), "ana", named("loud"))()
	}
	require.Len(t, c.List(), maxListed)
	require.Contains(t, names(&c), "quiet")

	var busy Clients
	for i := range maxListed {
		busy.Begin(fmt.Sprint(i), "ana", named("busy"))
	}
	busy.Begin("late", "bo", named("late"))()
	require.NotContains(t, names(&busy), "late")
	require.Len(t, busy.List(), maxListed)
}
