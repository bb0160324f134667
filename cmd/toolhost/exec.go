package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// execTool is the name of the plugin that runs scripts, and of its tool.
const execTool = "exec"

// runScripts lets agents run scripts. The scripts can call every tool, unless
// the operator has granted others.
func (c *config) runScripts() {
	c.exec = true
	if _, granted := c.server.Grants[execTool]; !granted {
		c.server.Grants[execTool] = host.Grant{Clock: true, Ask: true, Tools: []string{abi.EveryTool}}
	}
}

func execCommand(a *app) *cobra.Command {
	var f callFlags
	cmd := &cobra.Command{
		Use:   "exec FILE|-",
		Short: "Run a script that calls tools",
		Long: `Run a script of JavaScript or TypeScript, as an agent does with the tool exec: the
body of an async function that calls tools. The file is read here, or stdin with -.
It is like toolhost call exec, and also works where the setting exec is off.

Exit codes: those of toolhost call.`,
		Example: `  toolhost exec words.js
  echo 'return (await tools.wordcount({text: "a b"})).words' | toolhost exec -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			from := args[0]
			if from != "-" {
				from = "@" + from
			}
			code, err := a.source(cmd.Context(), from)
			if errors.Is(err, fs.ErrNotExist) {
				return &hintError{err, "for a script that is in no file: echo 'return 1' | toolhost exec -"}
			}
			if err != nil {
				return err
			}
			if len(code) == 0 || !utf8.Valid(code) {
				return &usageError{errors.New("the script is empty or not UTF-8 text"), ""}
			}
			a.config.runScripts()
			f.req.Tool = execTool
			if f.req.Args, err = json.Marshal(map[string]string{"code": string(code)}); err != nil {
				return err
			}
			return f.call(cmd.Context(), a)
		},
	}
	f.add(cmd.Flags())
	return cmd
}
