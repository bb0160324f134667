// Balanced runs three hosts that share a PostgreSQL server of their own, behind a load
// balancer that sends each request to the next host. It is for scripts that drive a server
// with a client:
//
//	balanced TOOLHOST FOLDER [FLAG…]
//
// TOOLHOST is the toolhost command, FOLDER is where the hosts' data folders go, and FLAG…
// are flags of serve. Balanced prints its address, kills one more host on each SIGHUP, and
// stops on an interrupt. It needs PostgreSQL.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/toolhost/toolhost/internal/fleet"
	"github.com/toolhost/toolhost/internal/pglocal"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: balanced TOOLHOST FOLDER [FLAG…]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "balanced:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program, folder string, flags []string) error {
	database, err := pglocal.Start("fsync=off")
	if err != nil {
		return err
	}
	defer database.Stop()
	hosts, err := fleet.Start(ctx, fleet.Config{Program: program, Args: flags, Engine: database.URL, Folder: folder, Hosts: 3, Log: os.Stderr})
	if err != nil {
		return err
	}
	defer hosts.Close()

	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	fmt.Println("balanced on", hosts.URL)
	for killed := 0; ; {
		select {
		case <-hangups:
			if killed == len(hosts.URLs()) {
				continue
			}
			if err := hosts.Kill(killed); err != nil {
				return err
			}
			killed++
			fmt.Println("killed host", killed)
		case <-ctx.Done():
			return nil
		}
	}
}
