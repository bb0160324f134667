package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/server/wire"
)

func kvCommand(a *app) *cobra.Command {
	var session, prefix string
	var remove bool
	cmd := &cobra.Command{
		Use:   "kv [PLUGIN [KEY]]",
		Short: "Show what plugins keep in their key-value stores, or remove it",
		Long: `Show the key-value stores of a server's plugins, the keys of one, or one value.

A store is kept when its plugin is removed: --remove removes it, or one value.`,
		Args: cobra.MaximumNArgs(2),
	}
	flags := cmd.Flags()
	flags.StringVar(&session, "of", "", "the store of this `session`, of a plugin that has one for each session")
	flags.StringVar(&prefix, "prefix", "", "list only keys that begin with this `text`")
	flags.Bool("dry-run", false, "with --remove: remove nothing")
	flags.BoolVar(&remove, "remove", false, "remove the store, or the value")

	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		switch {
		case len(args) == 0 && (remove || session != "" || prefix != ""):
			return &usageError{errors.New("--remove, --of and --prefix need the name of a plugin"), "toolhost kv lists the plugins that have a store"}
		case len(args) == 0:
			return r.listStores(ctx)
		}

		store := r.client.KV(args[0], session)
		switch {
		case remove && len(args) == 2:
			return store.Delete(ctx, args[1])
		case remove:
			return store.Clear(ctx)
		case len(args) == 2:
			v, err := store.Get(ctx, args[1])
			return r.reply(v, err, func() { r.print(string(v.Value) + "\n") })
		}
		return r.listStore(ctx, store, prefix)
	})
}

func (r *remote) listStores(ctx context.Context) error {
	stores, err := r.client.Stores(ctx)
	return r.reply(wire.KVStores{Stores: stores}, err, func() {
		rows := [][]string{{"PLUGIN", "SESSION", "KEYS", "BYTES", "CHANGED"}}
		for _, s := range stores {
			rows = append(rows, []string{s.Plugin, cmp.Or(s.Session, "-"), strconv.Itoa(s.Keys), human.Bytes(s.Bytes), dateTime(s.ChangedAt)})
		}
		r.list(rows, "No plugin keeps anything.")
	})
}

// listStore lists all values in a store, page by page.
func (r *remote) listStore(ctx context.Context, store client.KV, prefix string) error {
	all := []wire.Value{}
	for after := ""; ; after = all[len(all)-1].Key {
		page, err := store.List(ctx, prefix, after)
		if err != nil {
			return err
		}
		if all = append(all, page...); len(page) == 0 {
			break
		}
	}
	return r.answer(wire.Values{Values: all}, nil, func() {
		rows := [][]string{{"KEY", "BYTES", "WRITTEN", "EXPIRES"}}
		for _, v := range all {
			rows = append(rows, []string{v.Key, human.Bytes(int64(v.Bytes)), dateTime(v.WrittenAt), dateTime(v.ExpiresAt)})
		}
		r.list(rows, "No values.")
	})
}
