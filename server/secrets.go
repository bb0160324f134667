package server

import (
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/secret"
)

// Secrets manages the secrets of one user: those of Config.Secrets that each user has.
// They are stored encrypted, with the runs. Its methods are List, Set, Remove and Secret,
// which implements [host.Secrets]. The error of Set matches [engine.ErrNotFound] if the user
// cannot set such a secret, is a *[background.FieldError] for a value that no request could
// carry, and matches [vault.ErrNoKeys] if the operator has no key for such secrets. In a
// dry run, Set and Remove only check. It is a small value, safe for concurrent use.
type Secrets = secret.User

// Secrets returns the secrets of a user, whose sessions are USER/NAME. The user "" owns
// all other sessions.
func (s *Service) Secrets(user string) Secrets { return s.secrets.User(user) }

// SecretLinks holds the links that calls created for missing secrets. They are in memory
// only: a restart voids them. ServeAt sets the URL of the page for links, such as
// https://tools.example/secret/; without it, calls create none. Link returns the link with a
// token, and Use sets its secret and voids it. Their errors match [ErrLink]. If Use fails
// with an error of [Secrets], the link stays valid. It is safe for concurrent use.
type SecretLinks = secret.Links

// SecretLinks returns the links of the service.
func (s *Service) SecretLinks() *SecretLinks { return s.secrets.Links() }

// SecretLink is a one-time address where a user sets one of their secrets. Anyone who
// knows it can set that secret, but not read it.
type SecretLink = secret.Link

// SecretNeed is a missing secret that the user of a call can set on a page.
type SecretNeed = secret.Need

// Errors of missing secrets.
var (
	// ErrLink means that a link is unknown, used or expired, or that its secret has been
	// set in another way.
	ErrLink = reason.ErrLink
	// ErrNotConnected means that the user did not set a secret that a call needs.
	ErrNotConnected = secret.ErrNotConnected
)
