package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/examples/pluginbuild"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fleet"
	"github.com/toolhost/toolhost/internal/pglocal"
	"github.com/toolhost/toolhost/server/wire"
)

// Settings of the cluster demo.
const (
	clusterHosts = 3
	clusterLease = 2 * time.Second // short, so that nobody has to wait long
	clusterLimit = 400_000_000     // size of a task that takes some seconds
	clusterWait  = 10 * time.Minute
)

// playCluster runs three hosts that share a database, and kills the host that is
// working on the run.
func playCluster(ctx context.Context, a *app) error {
	cache, err := a.config.cacheDir()
	if err != nil {
		return err
	}
	dist, err := pluginbuild.Examples(ctx, host.Config{CacheDir: cache, Compiler: host.ThisProgram()}, "", []string{"primes"}, func(string, int, int) {
		a.notef("building example plugin primes")
	})
	if errors.Is(err, pluginbuild.ErrNoClone) {
		return &usageError{err, "git clone the project and run it there"}
	}
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "toolhost-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)

	c := &clusterDemo{app: a}
	database, stop, err := c.database()
	if err != nil {
		return err
	}
	defer stop()
	if c.hosts, err = c.start(ctx, temp, dist, database); err != nil {
		return err
	}
	defer c.hosts.Close()

	if c.client, err = client.New(c.hosts.URL, client.Options{Session: "demo"}); err != nil {
		return err
	}
	defer c.client.Close()

	ctx, cancel := context.WithTimeoutCause(ctx, clusterWait, errors.New("it takes longer than it should"))
	defer cancel()
	if err := c.play(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// database returns the URL of the configured database, or of a temporary one.
func (c *clusterDemo) database() (url string, stop func(), err error) {
	if c.config.engine != "" {
		return c.config.engine, func() {}, nil
	}
	c.notef("starting a PostgreSQL server of its own")
	database, err := pglocal.Start()
	if errors.Is(err, exec.ErrNotFound) {
		return "", nil, &usageError{err, "install it, as with apt-get install postgresql, or name a database of yours in TOOLHOST_ENGINE"}
	}
	if err != nil {
		return "", nil, err
	}
	return database.URL, database.Stop, nil
}

// start starts the hosts, which serve the plugins in the folder dist.
func (c *clusterDemo) start(ctx context.Context, temp, dist, database string) (*fleet.Fleet, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(temp, "toolhost.yaml")
	text, err := json.Marshal(map[string]any{ // JSON is YAML
		"plugins": []string{dist}, "starter": false, "lease": clusterLease.String(), "limits": map[string]any{"fuel": 10_000_000_000_000},
	})
	if err == nil {
		err = os.WriteFile(config, text, 0o600)
	}
	if err != nil {
		return nil, err
	}
	c.notef("starting %d hosts", clusterHosts)
	return fleet.Start(ctx, fleet.Config{Program: program, Args: []string{"--config", config}, Engine: database, Folder: temp, Hosts: clusterHosts})
}

// clusterDemo plays an agent behind a load balancer, and shows what happens on the
// hosts.
type clusterDemo struct {
	*app
	hosts  *fleet.Fleet
	client *client.Client
	ids    []string // ids of the hosts, in the order in which they were started
}

func (c *clusterDemo) play(ctx context.Context) error {
	c.printf("%d hosts share a PostgreSQL database, behind a balancer that sends each request to the next host.\n", clusterHosts)

	c.printf("\n# A run is spawned at one host. Each check is answered by another one.\n")
	c.printf("> spawn primes {\"limit\":%d}\n", clusterLimit)
	run, err := c.client.Spawn(ctx, wire.Spawn{Tool: "primes", Args: json.RawMessage(fmt.Sprintf(`{"limit":%d}`, clusterLimit))}, "")
	if err != nil {
		return err
	}
	c.printf("  %s is %s\n", run.TaskID, run.Status)
	if err := c.learn(ctx); err != nil {
		return err
	}
	begun := func(r wire.Run) bool { return share(r) >= 0.2 }
	if _, err := c.until(ctx, run.TaskID, begun); err != nil {
		return err
	}

	at, err := c.worker(ctx)
	if err != nil {
		return err
	}
	c.printf("\n# It is worked on by host %d, which is killed: kill -9.\n", at+1)
	if err := c.hosts.Kill(at); err != nil {
		return err
	}

	c.printf("\n# When its lease of %v is over, another host takes the run over, and continues at its last checkpoint.\n", clusterLease)
	again := func(r wire.Run) bool { return r.Done || r.Attempt > 1 && share(r) > 0 }
	if _, err := c.until(ctx, run.TaskID, again); err != nil {
		return err
	}
	run, err = c.until(ctx, run.TaskID, func(r wire.Run) bool { return r.Done })
	if err != nil {
		return err
	}
	if run.Status != wire.StatusSucceeded || run.Attempt != 2 {
		return fmt.Errorf("the run ended as %s in attempt %d", run.Status, run.Attempt)
	}
	c.printf("  result: %s\n", run.Result)

	c.printf("\n# The hosts know of it.\n> hosts\n")
	found, err := c.client.Hosts(ctx)
	if err != nil {
		return err
	}
	for _, h := range found.Hosts {
		if n := slices.Index(c.ids, h.HostID); n >= 0 { // others may use the database too
			c.printf("  host %d: %s\n", n+1, h.State)
		}
	}
	c.printf("\nDone. Try it: toolhost serve --engine postgres://… (docs/cluster.md)\n")
	return nil
}

// until checks on a run, and prints its state, until enough returns true.
func (c *clusterDemo) until(ctx context.Context, id string, enough func(wire.Run) bool) (wire.Run, error) {
	for {
		run, err := c.client.Run(ctx, id)
		if err != nil {
			return run, err
		}
		if enough(run) {
			c.printf("> check %s\n  %s, attempt %d%s\n", id, run.Status, run.Attempt, percent(run))
			return run, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return run, context.Cause(ctx)
		}
	}
}

// share returns the fraction of its work that a run has reported as done.
func share(run wire.Run) float64 {
	if run.Progress == nil || run.Progress.Total == 0 {
		return 0
	}
	return run.Progress.Done / run.Progress.Total
}

func percent(run wire.Run) string {
	if run.Done {
		return ""
	}
	return fmt.Sprintf(", %.0f %%", 100*share(run))
}

// learn asks each host for its id.
func (c *clusterDemo) learn(ctx context.Context) error {
	c.ids = nil
	for _, url := range c.hosts.URLs() {
		one, err := client.New(url, client.Options{Session: "demo"})
		if err != nil {
			return err
		}
		found, err := one.Hosts(ctx)
		one.Close()
		if err != nil {
			return err
		}
		self := slices.IndexFunc(found.Hosts, func(h wire.Host) bool { return h.Self })
		if self < 0 {
			return errors.New("a host does not know itself")
		}
		c.ids = append(c.ids, found.Hosts[self].HostID)
	}
	return nil
}

// worker finds the host that is working on a run.
func (c *clusterDemo) worker(ctx context.Context) (int, error) {
	found, err := c.client.Hosts(ctx)
	if err != nil {
		return 0, err
	}
	for _, h := range found.Hosts {
		if n := slices.Index(c.ids, h.HostID); n >= 0 && h.Running > 0 {
			return n, nil
		}
	}
	return 0, errors.New("no host works on the run")
}
