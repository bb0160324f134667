package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/server/vault"
	"github.com/toolhost/toolhost/server/wire"
)

func secretCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Show which secrets have a value, and set or remove those of users",
		Long: `Show which secrets have a value, and set or remove those of users.

Secrets go into HTTP requests of plugins. Those with scope: user in the
configuration have a value for each user, which a server keeps encrypted. Others
get their value from the configuration. No command shows a value.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(secretListCommand(a), secretSetCommand(a), secretRemoveCommand(a), secretKeyCommand(a))
	return cmd
}

// ofUser adds the flag that selects a user.
func ofUser(cmd *cobra.Command) *string {
	return cmd.Flags().String("of", "", "the `user` whose secret it is, by an operator (default: who calls)")
}

func secretListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "Show the secrets and whether they have a value", Args: cobra.NoArgs}
	user := ofUser(cmd)
	return a.remote(cmd, func(ctx context.Context, r *remote, _ []string) error {
		all, err := r.client.Secrets(*user).List(ctx)
		return r.reply(wire.Secrets{Secrets: all}, err, func() {
			rows := [][]string{{"NAME", "SCOPE", "VALUE", "SET", "HOSTS"}}
			for _, s := range all {
				value := "missing"
				if s.Set {
					value = "set"
				}
				rows = append(rows, []string{s.Name, string(s.Scope), value, dateTime(s.SetAt), strings.Join(s.Hosts, ", ")})
			}
			r.list(rows, "No secrets are configured.")
		})
	})
}

func secretSetCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Set the value of a user's secret",
		Long: `Set the value of a user's secret. The value is asked for on a terminal, and else
read from stdin without its last line break:

  toolhost secret set example < key.txt`,
		Args: cobra.ExactArgs(1),
	}
	user := ofUser(cmd)
	cmd.Flags().Bool("dry-run", false, "check the value, and store nothing")
	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		value, err := r.secretValue(ctx, args[0])
		if err != nil {
			return err
		}
		return r.client.Secrets(*user).Set(ctx, args[0], value)
	})
}

// secretValue asks for a secret's value, or reads it from stdin.
func (u *ui) secretValue(ctx context.Context, name string) (string, error) {
	value, err := u.hidden(ctx, oneLine(name), vault.MaxValue)
	if err == nil && value == "" {
		err = &usageError{errors.New("the value is empty"), "toolhost secret remove removes one"}
	}
	return value, err
}

// hidden asks for a text without echo if stdin is a terminal, or else reads it from
// stdin and removes the last line break.
func (u *ui) hidden(ctx context.Context, prompt string, most int64) (string, error) {
	var data []byte
	var err error
	if u.asks() {
		fmt.Fprintf(u.err, "%s: ", prompt)
		data, err = term.ReadPassword(int(u.in.(*os.File).Fd()))
		fmt.Fprintln(u.err)
	} else {
		data, err = readUntil(ctx, io.LimitReader(u.in, most+2))
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), err
}

// asks reports whether stdin is a terminal, so that a person can be asked.
func (u *ui) asks() bool {
	f, ok := u.in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func secretRemoveCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "remove NAME", Short: "Remove the value of a user's secret", Args: cobra.ExactArgs(1)}
	user := ofUser(cmd)
	cmd.Flags().Bool("dry-run", false, "remove nothing")
	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		return r.client.Secrets(*user).Remove(ctx, args[0])
	})
}

func secretKeyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "key FILE",
		Short: "Add a new key for the secrets of users to a file",
		Long: `Add a new key for the secrets of users to a file, before those that it has. The file
is made if it does not exist, for this user only. Name it in secrets_key of the
configuration.

The first key encrypts, and the others decrypt what they encrypted. A server that is
started or reloaded (SIGHUP) encrypts all secrets with the first key. After that the
lines of the others can be removed.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := addKey(args[0]); err != nil {
				return err
			}
			a.printf("%s has a new key: name it in secrets_key, and start the server or run toolhost reload\n", oneLine(args[0]))
			return nil
		},
	}
}

// addKey puts a new key in front of the others in a file. After a crash, the file
// contains either the old keys or all of them.
func addKey(name string) error {
	old, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	} else if err == nil {
		err = vault.Keys(name).Check() // also that nobody else can read it
	}
	if err != nil {
		return &usageError{err, keyHint(err)}
	}

	_, err = replaceFile(name, func(file *os.File) error {
		_, err := file.WriteString(vault.NewKey() + "\n" + string(old))
		if info, statErr := os.Stat(name); statErr == nil && err == nil {
			err = errors.Join(file.Chmod(info.Mode().Perm()), owned.Give(file.Name(), info))
		}
		return err
	})
	return err
}
