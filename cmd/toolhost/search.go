package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

func searchCommand(a *app) *cobra.Command {
	limit := 20
	cmd := &cobra.Command{
		Use:   "search [WORDS]",
		Short: "Find tools by words, and show how scripts call them",
		Long: `Find tools by words of their names, descriptions and schemas, the best match first.
Without words all tools are shown. Those that lack grants are not. Each is declared
in TypeScript, as models and scripts see it that search for it.`,
		Example: `  toolhost search count words
  toolhost search files_read --json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > server.MaxFound {
				return &usageError{fmt.Errorf("--limit: expected a number from 1 to %d", server.MaxFound), ""}
			}
			debug.SetGCPercent(400) // the process ends soon
			s, done, err := a.open(cmd.Context(), nil)
			if err != nil {
				return err
			}
			defer done()

			a.warnOf(fileProblems(s.Problems()))
			found := s.Declarations(strings.Join(args, " "), limit)
			return a.answer(found, nil, func() { a.printDeclarations(found) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "show at most so many `tools`")
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// printDeclarations shows tools to people. The texts of the tools' authors take up few
// lines, and have no control characters.
func (u *ui) printDeclarations(found wire.Declarations) {
	for _, t := range found.Tools {
		u.printf("// %s\n%s\n\n", oneLine(t.Description), t.Declaration)
	}
	switch {
	case len(found.Tools) == 0:
		u.notef("no tool has these words")
	case found.More > 0:
		u.notef("%d more: --limit shows more of them", found.More)
	}
}
