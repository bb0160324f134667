package main

import "fmt"

// addrKey and tokenKey are the keys of where a client connects, and with what.
const (
	addrKey  = "addr"
	tokenKey = "token"
)

// clientToken is the token for the address in force. It is empty if there is
// none, or the address is a socket, which needs none.
//
// A token goes only to the address it was given for. One in a file is for the
// address in the same file; one in the environment is for the address of a flag,
// of the environment, or of the user's own configuration. So a file that somebody
// else wrote can direct a client, and gets no token of its user's.
func (c *loaded) clientToken() (string, error) {
	if _, socket := socketOf(c.addr); c.token == "" || c.addr == "" || socket {
		return "", nil
	}

	given := c.givenFor()
	to, err := serverURL(c.addr)
	if err != nil {
		return "", err
	}
	if from, err := serverURL(given); err == nil && *from == *to {
		return c.token, nil
	}

	if given == "" {
		given = "no address"
	}
	return "", &usageError{
		fmt.Errorf("the token of %s is not sent to %s, the addr of %s: it was given for %s", c.from(tokenKey), c.addr, c.from(addrKey), given),
		"write addr into the same file, or give both by hand: TOOLHOST_TOKEN, and --addr or TOOLHOST_ADDR",
	}
}

// givenFor is the address that the source of the token names.
func (c *loaded) givenFor() string {
	var source layer
	for _, l := range c.layers {
		if l.k.Exists(tokenKey) {
			source = l
		}
	}
	if source.kind != byHand {
		return source.k.String(addrKey)
	}

	given := ""
	for _, l := range c.layers {
		if l.kind != namedFile && l.k.Exists(addrKey) {
			given = l.k.String(addrKey)
		}
	}
	return given
}
