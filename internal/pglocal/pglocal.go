// Package pglocal starts a private PostgreSQL server in a temporary folder, for tests and
// for the demo of several hosts.
package pglocal

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Cluster is a PostgreSQL server with its data.
type Cluster struct {
	URL    string // URL of the server's database "postgres"
	folder string
	bin    string
	as     *user.User // user to run the server as; nil means this user
}

// With returns a URL with a query parameter added.
func With(address, name, value string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// Start creates a cluster with settings such as "fsync=off", and starts its server, which
// listens only on a Unix socket. If PostgreSQL is not installed, the error matches
// [exec.ErrNotFound].
func Start(settings ...string) (*Cluster, error) {
	c, err := newCluster()
	if err != nil {
		return nil, err
	}

	err = c.run("initdb", "-D", c.data(), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
	if err == nil {
		err = c.set(append([]string{"listen_addresses=", "max_connections=200", "unix_socket_directories=" + c.folder}, settings...))
	}
	if err == nil {
		err = c.Resume()
	}
	if err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// StartStandby creates a cluster whose server is a streaming standby of primary.
func StartStandby(primary *Cluster, settings ...string) (*Cluster, error) {
	c, err := newCluster()
	if err != nil {
		return nil, err
	}
	if err := c.Follow(primary, settings...); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Follow turns a stopped cluster into a streaming standby of primary, and starts it. The
// cluster's old data is removed.
func (c *Cluster) Follow(primary *Cluster, settings ...string) error {
	if err := os.RemoveAll(c.data()); err != nil {
		return err
	}
	err := c.run("pg_basebackup", "-D", c.data(), "-h", primary.folder, "-U", "postgres", "--checkpoint=fast", "--no-sync", "-R")
	if err == nil {
		err = c.set(append([]string{"unix_socket_directories=" + c.folder}, settings...))
	}
	if err == nil {
		err = c.Resume()
	}
	return err
}

// newCluster creates the folder for a cluster, without a server.
func newCluster() (*Cluster, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "pg") // short: the path of a socket has at most 107 bytes
	if err != nil {
		return nil, err
	}
	c := &Cluster{folder: folder, bin: bin, URL: "postgres://postgres@/postgres?" + url.Values{"host": {folder}}.Encode()}
	if os.Geteuid() != 0 {
		return c, nil
	}

	if c.as, err = user.Lookup("postgres"); err == nil { // the server refuses root
		uid, _ := strconv.Atoi(c.as.Uid)
		gid, _ := strconv.Atoi(c.as.Gid)
		err = os.Chown(folder, uid, gid)
	}
	if err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// set adds settings to the configuration that the server reads when it starts.
func (c *Cluster) set(settings []string) error {
	file, err := os.OpenFile(filepath.Join(c.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		_, _ = fmt.Fprintf(file, "%s = '%s'\n", name, value)
	}
	return file.Close()
}

// programs returns the folder that contains the programs of the newest installed server.
func programs() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian
	slices.Sort(found)
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", fmt.Errorf("no PostgreSQL server: %w", err)
	}
	return filepath.Dir(path), nil
}

func (c *Cluster) data() string { return filepath.Join(c.folder, "data") }

// run runs one of the server's programs.
func (c *Cluster) run(name string, args ...string) error {
	command := append([]string{filepath.Join(c.bin, name)}, args...)
	if c.as != nil {
		command = append([]string{"setpriv", "--reuid=" + c.as.Uid, "--regid=" + c.as.Gid, "--clear-groups"}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = c.folder
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out.String())
	}
	return nil
}

// Resume starts the server, and waits until it accepts connections.
func (c *Cluster) Resume() error {
	return c.run("pg_ctl", "-D", c.data(), "-l", filepath.Join(c.folder, "log"), "-w", "start")
}

// Crash stops the server at once, as a crash would.
func (c *Cluster) Crash() error {
	return c.run("pg_ctl", "-D", c.data(), "-m", "immediate", "-w", "stop")
}

// Promote turns a standby into a primary.
func (c *Cluster) Promote() error { return c.run("pg_ctl", "-D", c.data(), "-w", "promote") }

// Failover returns a URL that connects to the current primary of two clusters.
func Failover(a, b *Cluster) string {
	return With(With(a.URL, "host", a.folder+","+b.folder), "target_session_attrs", "read-write")
}

// Stop stops the server and removes its files. It does nothing if Start did not start the
// server.
func (c *Cluster) Stop() {
	if c.folder == "" {
		return
	}
	_ = c.Crash() // if it runs
	_ = os.RemoveAll(c.folder)
}
