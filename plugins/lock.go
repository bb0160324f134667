package plugins

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/lock"
)

// Lock is a file that records which plugins the operator has accepted, as written by
// toolhost lock. A plugin that differs from the lock is not loaded, and is a Problem. None
// of its code runs, not even its describe function. Its accepted version is loaded instead.
// Grants that were not accepted are left out. The zero Lock accepts everything.
type Lock struct {
	// File is the lock file. It is read and watched together with the folders. Everything
	// is accepted until it exists. If it is later removed or becomes unreadable, its last
	// content stays in force until the registry is closed. If it cannot be read when the
	// registry is opened, nothing is loaded.
	File string
	// Kept is the folder where accepted plugins are kept, named after their digests, so
	// that they can still be loaded once their files have been replaced. If empty, none are
	// kept: a plugin whose file is replaced then stays in use only if it is already compiled.
	Kept string
	// Check may refuse the content of File. Nil accepts it.
	Check func(data []byte) error
}

// ErrNotAccepted means that the operator has not accepted a plugin or one of its grants.
var ErrNotAccepted = errors.New("not accepted by " + lock.Name)

// LockError says how a plugin differs from the lock. It matches [ErrNotAccepted].
type LockError struct {
	Plugin      string   // name; empty if only the plugin itself knows it
	Differences []string // what differs, as phrases; empty if the plugin is not in the lock
}

func (e *LockError) Error() string {
	switch {
	case len(e.Differences) > 0:
		return fmt.Sprintf("the plugin %s is not what %s has: %s: toolhost diff %[1]s shows the change, toolhost lock %[1]s accepts it", e.Plugin, lock.Name, strings.Join(e.Differences, "; "))
	case e.Plugin == "":
		return fmt.Sprintf("the plugin is not in %s: toolhost lock accepts it", lock.Name)
	}
	return fmt.Sprintf("the plugin %s is not in %s: toolhost lock %[1]s accepts it", e.Plugin, lock.Name)
}

// Unwrap returns [ErrNotAccepted].
func (e *LockError) Unwrap() error { return ErrNotAccepted }

// Read reads the lock. It returns nil if there is no lock.
func (k Lock) Read() (*lock.File, error) {
	if k.File == "" {
		return nil, nil
	}
	data, err := lock.ReadBytes(k.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && k.Check != nil {
		err = k.Check(data)
	}
	if err != nil {
		return nil, unpath(err)
	}
	return lock.Parse(data)
}

// readAfter reads the lock again. It returns nil if there is no lock. After an error, the earlier
// lock stays in force.
func (k Lock) readAfter(before *lock.File) (*lock.File, error) {
	f, err := k.Read()
	switch {
	case err == nil && f == nil && before != nil:
		return before, errors.New("it is gone: what it accepted stays in force until a restart")
	case err == nil:
		return f, nil
	case before == nil:
		return nil, fmt.Errorf("no plugin is loaded, because it cannot be used: %w", err)
	}
	return before, fmt.Errorf("it cannot be used, and what it accepted earlier stays in force: %w", err)
}

// LockSource returns what a lock records as the folder's source. The source names of packs and
// built-in folders are reserved: another folder with such a name gets a prefix, as in
// "./starter".
func (f Folder) LockSource() string {
	switch {
	case f.Pack:
		return lock.Starter
	case f.BuiltIn:
		return lock.BuiltIn
	}

	source := f.Source
	if source == "" && !lock.IsOCI(f.Path) {
		source = filepath.ToSlash(filepath.Clean(f.Path))
	}
	if source == lock.Starter || source == lock.BuiltIn {
		source = "./" + source
	}
	return cmp.Or(source, f.Path)
}

// Entry returns the plugin and its grants as an entry for the lock file at the given path. The
// errors are the same as those of [Plugin.Digest].
func (p *Plugin) Entry(file string) (lock.Plugin, error) {
	digest, err := p.Digest()
	if err != nil {
		return lock.Plugin{}, err
	}

	dir := filepath.Dir(file)
	e := lock.Plugin{
		Name: p.Manifest.Name, Version: p.Manifest.Version, Source: p.from.LockSource(), Resolved: p.at.name,
		Module: lock.OfHex(digest), Sidecar: lock.OfHex(p.beside), Tools: map[string]string{},
		Grants: grantTexts(p.granted, dir), Wider: widerTexts(p.granted, dir),
	}
	e.Signer = lockSigner(p.Signer)
	e.Unsigned = e.Signer == nil && !p.Pack && !p.builtIn
	switch {
	case p.kept:
		e.Resolved = p.locked.Resolved
	case p.from.Resolved != nil:
		if e.Resolved, err = p.from.Resolved(); err != nil {
			return e, err
		}
	}
	for i := range p.Manifest.Tools {
		t := &p.Manifest.Tools[i]
		if e.Tools[t.Name], err = lock.ToolDigest(p.agentName(t), t); err != nil {
			return e, err
		}
	}
	return e, nil
}

// lockSigner returns a signer in the form of a lock; nil if there is none.
func lockSigner(s Signer) *lock.Signer {
	switch {
	case s == Signer{}:
		return nil
	case s.Minisign != "":
		return &lock.Signer{Minisign: s.Minisign}
	case s.Key != "":
		return &lock.Signer{Key: s.Key}
	}
	return &lock.Signer{Sigstore: &lock.Sigstore{Issuer: s.Sigstore.Issuer, Identity: s.Sigstore.Identity}}
}

// Locked reports whether the plugin is in the lock, and was loaded as accepted.
func (p *Plugin) Locked() bool { return p.locked != nil }

// Kept reports whether the plugin is the accepted version, loaded because its file was
// replaced.
func (p *Plugin) Kept() bool { return p.kept }

// Described returns what the plugin says about itself in its manifest.
func (p *Plugin) Described() lock.Described {
	return lock.Described{Manifest: p.Manifest, Needs: Needs(p.Manifest)}
}

// checkModule refuses a module that was not accepted, before any of it runs.
func (l *loader) checkModule(p *Plugin) error {
	if l.lock == nil {
		return nil
	}
	if p.locked == nil {
		return &LockError{}
	}

	digest, err := p.Digest()
	if have := lock.OfHex(digest); err == nil && have != p.locked.Module {
		err = &LockError{p.locked.Name, []string{lock.ModuleChange(p.locked.Module, have)}}
	}
	return err
}

// checkLock refuses a plugin that differs from the lock. If its module was refused, the
// error can say more now. A plugin of a pack that is not in the lock is refused only if
// it does not give way to another one.
func (l *loader) checkLock(p *Plugin, refused error) error {
	switch {
	case l.lock == nil:
		return nil
	case p.locked == nil:
		err := l.unlocked(p.Manifest.Name)
		if p.Pack {
			p.refused, err = err, nil
		}
		return err
	}

	have, err := p.Entry(l.cfg.Lock.File)
	if err != nil {
		return err
	}
	have.Grants = p.locked.Grants // see within
	if l.anySigner {
		have.Signer, have.Unsigned = p.locked.Signer, p.locked.Unsigned
	}
	differences := p.locked.Differences(&have)
	if differences == nil {
		return refused
	}
	if !p.kept {
		if before, err := l.keptVersion(p.at, p.from, p.locked); err == nil {
			l.replaced = before
			differences = p.locked.DifferencesIn(&have, before.Described(), p.Described())
		}
	}
	return &LockError{p.locked.Name, differences}
}

// unlocked returns the error for a plugin that is not in the lock.
func (l *loader) unlocked(name string) error {
	e := &LockError{Plugin: name}
	if other := l.lock.Named(name); other != nil {
		e.Differences = []string{fmt.Sprintf("that name is the one of %s in %s", other.Resolved, other.Source)}
	}
	return e
}

// sameLock reports whether the plugin's entry in the lock is unchanged.
func (l *loader) sameLock(p *Plugin, now *lock.Plugin) bool {
	if l.lock == nil {
		return p.locked == nil
	}
	return now != nil && reflect.DeepEqual(p.locked, now)
}

// accepted returns the lock's entry for a file, or nil.
func (l *loader) accepted(source, file string) *lock.Plugin {
	if l.lock == nil {
		return nil
	}
	return l.lock.At(source, file)
}

// missing reports the plugins of the lock whose files are gone.
func (l *loader) missing(folders []Folder, found []*Plugin) {
	if l.lock == nil {
		return
	}
	for _, e := range l.lock.Plugins {
		for _, f := range folders {
			if f.LockSource() != e.Source || f.single { // the folder is a problem itself
				continue
			}
			if _, err := fs.Stat(f.FS, e.File()); errors.Is(err, fs.ErrNotExist) && !isFound(found, e.Name) {
				l.problem(f.file(e.File()), fmt.Errorf("%s has the plugin %s, and the file is gone: toolhost lock %[2]s removes it: %[3]w", lock.Name, e.Name, ErrNotAccepted))
			}
		}
	}
}

func isFound(found []*Plugin, name string) bool {
	for _, p := range found {
		if p.Manifest.Name == name {
			return true
		}
	}
	return false
}

// agentName returns the name of a tool for agents.
func (p *Plugin) agentName(t *abi.Tool) string {
	if p.Pack {
		return t.Name
	}
	return abi.AgentName(p.Manifest.Name, t.Name)
}

// Accept writes a lock that accepts exactly these plugins, as loaded and with their grants,
// and copies their files to Kept if it is set. Registries that use the lock apply it at their
// next reload.
func (k Lock) Accept(all []*Plugin) error {
	var f lock.File
	for _, p := range all {
		e, err := p.Entry(k.File)
		if err == nil && k.Kept != "" {
			err = p.KeepAs(k.Kept, &e)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.File, err)
		}
		f.Set(e)
	}
	return lock.Write(k.File, &f)
}
