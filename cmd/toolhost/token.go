package main

import (
	"fmt"

	"github.com/toolhost/toolhost/client"
)

// clientToken is the token for the address in force. It is empty if there is
// none, and for a socket, which needs none.
//
// A token goes only to the address it was given for. One in a file is for the
// address in the same file. One in the environment is for the address of a flag,
// of the environment, or of the user's own configuration. So a file that somebody
// else wrote can choose the server, but does not get the user's token.
func (c *loaded) clientToken() (string, error) {
	if c.token == "" || c.addr == "" {
		return "", nil
	}
	to, err := urlOfServer(c.addr)
	if to == "" || err != nil {
		return "", err
	}

	given := c.givenFor()
	if from, err := urlOfServer(given); err == nil && from == to {
		return c.token, nil
	}

	if given == "" {
		given = "no address"
	}
	return "", &usageError{
		fmt.Errorf("the token of %s is not sent to %s, the addr of %s: it was given for %s", c.from("token"), c.addr, c.from("addr"), given),
		"write addr into the same file, or set TOOLHOST_TOKEN together with --addr or TOOLHOST_ADDR",
	}
}

// urlOfServer is the URL of an address; empty for a socket.
func urlOfServer(address string) (string, error) {
	c, err := client.New(address, client.Options{})
	if err != nil {
		return "", err
	}
	return c.URL(), nil
}

// givenFor is the address that the source of the token names.
func (c *loaded) givenFor() (given string) {
	var source layer
	for _, l := range c.layers {
		if l.k.Exists("token") {
			source = l
		}
	}
	if source.kind != byHand {
		return source.k.String("addr")
	}

	for _, l := range c.layers {
		if l.kind != namedFile && l.k.Exists("addr") {
			given = l.k.String("addr")
		}
	}
	return given
}
