package server

import (
	"cmp"
	"context"
	"errors"
	"reflect"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fair"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
)

// settings are the configuration in force, and values derived from it. They are
// immutable: [Service.Reconfigure] replaces them, together with the plugins.
type settings struct {
	cfg       Config
	rules     catalog.Rules
	approvals approval.Rules
}

func newSettings(cfg Config) *settings {
	terms := catalog.Terms{Limits: cfg.Limits, Max: cfg.MaxLimits, Park: cfg.Park, ParkAfter: cfg.ParkAfter}
	return &settings{cfg: cfg, rules: catalog.NewRules(terms), approvals: cfg.approvalRules()}
}

// Rules implements [catalog.Settings].
func (s *settings) Rules() catalog.Rules { return s.rules }

// Listings implements [catalog.Settings].
func (s *settings) Listings() catalog.Listings { return s.cfg.Listing }

// Approval implements [catalog.Settings].
func (s *settings) Approval(tool *catalog.Tool) abi.Approval { return s.approvals.Policy.Shown(tool) }

// rulesOf returns the rules for approvals that were in force when a tool was found.
func rulesOf(tool *catalog.Tool) approval.Rules { return tool.Settings.(*settings).approvals }

// configOf returns the configuration in force when a tool was found.
func configOf(tool *catalog.Tool) *Config { return &tool.Settings.(*settings).cfg }

// check returns a *background.FieldError for contradictory settings.
func (s *settings) check() error {
	return errors.Join(s.cfg.check(s.rules.MaxBackground()), s.approvals.Policy.Check(), s.Listings().Check())
}

// now returns the settings in force. A call keeps the settings that were in force when its
// tool was found.
func (s *Service) now() *settings { return s.registry.View().Attached().(*settings) }

// changed returns a copy of c with those fields taken from another configuration that may
// change while a Service is open.
func (c Config) changed(to Config) Config {
	c.Folders, c.Grants, c.Interpret, c.Verifier, c.Lock = to.Folders, to.Grants, to.Interpret, to.Verifier, to.Lock
	c.Limits, c.MaxLimits, c.Answer, c.Park, c.ParkAfter = to.Limits, to.MaxLimits, to.Answer, to.Park, to.ParkAfter
	c.Secrets, c.Listing, c.Approvals, c.Approve, c.Watch = to.Secrets, to.Listing, to.Approvals, to.Approve, to.Watch
	c.Runs = c.Runs.Reconfigured(to.Runs)
	return c
}

// fixed returns a *background.FieldError that names a field that differs in another
// configuration and may not change.
func (c Config) fixed(to Config) error {
	to = to.changed(c)
	if name := differing(reflect.ValueOf(c), reflect.ValueOf(to)); name != "" {
		return &background.FieldError{Field: name, Problem: "cannot change while the Service is open: close it, and open another one"}
	}
	return nil
}

// differing returns the name of the first field of a struct whose values differ; for Runs,
// Lock and Host, the name of the field within it.
func differing(a, b reflect.Value) string {
	for i := range a.NumField() {
		name, x, y := a.Type().Field(i).Name, a.Field(i), b.Field(i)
		switch {
		case name == "Runs" || name == "Host" || name == "Lock":
			if inner := differing(x, y); inner != "" {
				return name + "." + inner
			}
		case x.Kind() == reflect.Func:
			if x.Pointer() != y.Pointer() {
				return name
			}
		case !reflect.DeepEqual(x.Interface(), y.Interface()):
			return name
		}
	}
	return ""
}

// Reconfigure changes the configuration while the Service is open, and reloads the plugins.
// The function change gets a copy of the configuration in force. It may set Folders, Grants,
// Interpret, Verifier, Lock, Limits, MaxLimits, Answer, Park, ParkAfter, Secrets, Listing,
// Approvals, Approve, Watch, and the fields of Runs that [background.Manager.Reconfigure]
// names. It must replace maps and slices of the copy, not modify them.
//
// All changes apply at once. Calls and runs that have begun keep the plugin, the grants, the
// limits and the secrets they began with. If they call another tool, that counts as a new
// call.
//
// The error is a *[background.FieldError] for a field that cannot change, for contradictory
// values, or for keys that cannot decrypt what is stored. Otherwise it is the cancellation
// cause of ctx, or matches [host.ErrClosed]. After an error, nothing has changed. Concurrent
// changes are made one after the other.
func (s *Service) Reconfigure(ctx context.Context, change func(*Config)) (plugins.Changes, error) {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	if s.closed.Load() {
		return plugins.Changes{}, reason.ErrShutdown
	}

	before := s.now()
	wanted := before.cfg
	change(&wanted)
	now := newSettings(before.cfg.changed(wanted))
	if err := errors.Join(before.cfg.fixed(wanted), now.check()); err != nil {
		return plugins.Changes{}, err
	}
	if err := s.secrets.CheckKeys(ctx, now.cfg.Secrets); err != nil {
		return plugins.Changes{}, err
	}
	if err := s.runs.Reconfigure(now.bounds); err != nil { // it refuses negative numbers
		return plugins.Changes{}, err
	}
	c, err := s.registry.Reconfigure(ctx, func(cfg *plugins.Config) {
		cfg.Folders, cfg.Grants, cfg.Interpret, cfg.Verifier = now.cfg.Folders, now.cfg.Grants, now.cfg.Interpret, now.cfg.Verifier
		cfg.Lock, cfg.Attached = now.cfg.Lock, now
	})
	if err != nil {
		return c, errors.Join(err, s.runs.Reconfigure(before.bounds))
	}

	s.reloads.Watch(now.cfg.Watch)
	if err := s.secrets.Renew(ctx); err != nil {
		s.log.Warn("secrets of users were not encrypted with the first key; the next reload tries again", "error", err)
	}
	s.reloads.Report(c)
	s.reoffer()
	s.changed.Send()
	return c, nil
}

// CheckSecrets returns a *[background.FieldError] if a reconfiguration with these secrets
// would be refused, because their keys cannot decrypt what is stored.
func (s *Service) CheckSecrets(ctx context.Context, next host.Secrets) error {
	return s.secrets.CheckKeys(ctx, next)
}

// places returns how many runs this host works on at a time.
func (c Config) places() int { return cmp.Or(c.Runs.PerHost, background.DefaultPerHost) }

// answer returns how many bytes of a value a model gets at once.
func (c *Config) answer() int64 { return cmp.Or(c.Answer, DefaultAnswer) }

// bounds sets the limits of runs in a configuration.
func (s *settings) bounds(to *background.Config) {
	*to = to.Reconfigured(s.cfg.Runs)
	to.MaxTimeout = s.rules.MaxBackground()
	if s.cfg.Host.Shared {
		to.PerOwner = fair.PerClient(s.cfg.places())
	}
}
