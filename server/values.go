package server

import (
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/values"
)

// AnyVersion stores or deletes a value regardless of its version.
const AnyVersion = engine.AnyVersion

// SessionValues are the values that the tools of a session share: at most 256 of them,
// and 1 MiB. They are removed when the session ends, or when none was written for a week.
type SessionValues = values.Values

// Values returns the values that the tools of the session share.
func (v Session) Values() SessionValues { return values.OfSession(v.service.engine, v.name) }

// KV manages the key-value stores of plugins, for operators. A store outlives its plugin
// and the plugin's grant.
type KV = values.KV

// KV returns the key-value stores of plugins.
func (s *store) KV() KV { return values.NewKV(s.engine, s.audit.Admin) }
