package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// completionTime limits how long a shell waits for a completion.
const completionTime = 2 * time.Second

// An argument says how the arguments of a command are completed.
type argument struct {
	most  int                                                                         // number of arguments completed; 0 means all
	words func(ctx context.Context, a *app, cmd *cobra.Command) ([]completion, error) // completions for an argument; nil completes file names
	files []string                                                                    // extensions of the files to complete
}

// A completion is a word with its description, which may have been written by a plugin
// or a client.
type completion struct{ word, about string }

// arguments describes the arguments of those commands that take more than flags.
var arguments = map[string]argument{
	"call": {most: 1, words: localTools}, "spawn": {most: 1, words: serverTools},
	"check": {words: runs(false)}, "wait": {words: runs(false)}, "logs": {most: 1, words: runs(false)}, "remove": {words: runs(false)},
	"stop": {most: 1, words: runs(true)}, "message": {most: 1, words: runs(true)}, "approve": {most: 1, words: waitingCalls},
	"lock": {words: localPlugins}, "diff": {words: localPlugins}, "kv": {most: 1, words: stores},
	"new":     {most: 1, words: projectLanguages},
	"inspect": {files: []string{"wasm"}}, "seal": {files: []string{"wasm"}}, "test": {files: []string{"wasm"}}, "bench": {files: []string{"wasm"}},
	"exec": {files: []string{"js", "ts", "mjs", "mts"}}, "trust": {files: configExtensions}, "restore": {files: []string{"zip"}},
}

var configExtensions = []string{"yaml", "yml", "toml", "json"}

// addCompletion adds completion for the arguments and flags of all commands.
func addCompletion(a *app, root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	flags := map[string]cobra.CompletionFunc{
		"log-level":  cobra.FixedCompletions([]cobra.Completion{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp),
		"log-format": cobra.FixedCompletions([]cobra.Completion{formatText, formatJSON}, cobra.ShellCompDirectiveNoFileComp),
		"config":     cobra.FixedCompletions(configExtensions, cobra.ShellCompDirectiveFilterFileExt),
		"plugins":    cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
		"data":       cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
	}
	for name, f := range flags {
		_ = root.RegisterFlagCompletionFunc(name, f) // fails only for unknown flags
	}

	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.PersistentPreRunE = withoutConfig
		}
		if arg, ok := arguments[c.Name()]; ok {
			c.ValidArgsFunction = arg.complete(a)
		}
	}
}

// complete completes an argument. After an error it completes nothing.
func (arg argument) complete(a *app) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch {
		case arg.most > 0 && len(args) >= arg.most:
			return nil, cobra.ShellCompDirectiveDefault
		case arg.words == nil:
			return arg.files, cobra.ShellCompDirectiveFilterFileExt
		}

		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		err := a.load(cmd.Flags())
		var found []completion
		if err == nil {
			found, err = arg.words(ctx, a, cmd)
		}
		if err != nil {
			cobra.CompErrorln(oneLine(err.Error()))
		}

		var words []cobra.Completion
		for _, c := range found {
			if strings.HasPrefix(c.word, begun) && !slices.Contains(args, c.word) {
				words = append(words, cobra.CompletionWithDesc(c.word, short(c.about, 60)))
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// locally returns a function that completes words from the configured plugins. It does
// not compile any plugin.
func locally(list func(*plugins.Plugin) []completion) func(context.Context, *app, *cobra.Command) ([]completion, error) {
	return func(ctx context.Context, a *app, _ *cobra.Command) (words []completion, err error) {
		s, done, err := a.open(ctx, func(cfg *server.Config) { cfg.DescribeLater = true })
		if err != nil {
			return nil, err
		}
		defer done()

		for _, p := range s.Plugins() {
			words = append(words, list(p)...)
		}
		return words, nil
	}
}

var localTools = locally(func(p *plugins.Plugin) (words []completion) {
	for _, t := range p.Tools {
		words = append(words, completion{t.Name, t.Description})
	}
	return words
})

var localPlugins = locally(func(p *plugins.Plugin) []completion {
	return []completion{{p.Manifest.Name, p.Manifest.Description}}
})

// remotely returns a function that completes words that a server lists.
func remotely(list func(context.Context, *remote) ([]completion, error)) func(context.Context, *app, *cobra.Command) ([]completion, error) {
	return func(ctx context.Context, a *app, cmd *cobra.Command) ([]completion, error) {
		r, err := a.dial(cmd.Flags())
		if err != nil {
			return nil, err
		}
		defer r.close()
		return list(ctx, r)
	}
}

var serverTools = remotely(func(ctx context.Context, r *remote) (words []completion, err error) {
	tools, err := r.client.AllTools(ctx)
	for _, t := range tools {
		words = append(words, completion{t.Name, t.Description})
	}
	return words, err
})

// runs returns a function that completes the ids of the session's newest runs, or only
// of its active ones.
func runs(active bool) func(context.Context, *app, *cobra.Command) ([]completion, error) {
	return remotely(func(ctx context.Context, r *remote) (words []completion, err error) {
		found, err := r.client.Runs(ctx, client.RunQuery{Active: active})
		for _, r := range found.Runs {
			words = append(words, completion{r.TaskID, string(r.Status) + ": " + r.Title})
		}
		return words, err
	})
}

var waitingCalls = remotely(func(ctx context.Context, r *remote) (words []completion, err error) {
	waiting, err := r.waiting(ctx)
	for _, w := range waiting {
		words = append(words, completion{w.TaskID, w.Tool})
	}
	return words, err
})

var stores = remotely(func(ctx context.Context, r *remote) (words []completion, err error) {
	found, err := r.client.Stores(ctx)
	for _, s := range found {
		words = append(words, completion{word: s.Plugin})
	}
	return words, err
})

func projectLanguages(context.Context, *app, *cobra.Command) (words []completion, err error) {
	for _, name := range slices.Sorted(maps.Keys(languages)) {
		words = append(words, completion{word: name})
	}
	return words, nil
}
