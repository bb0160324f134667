package server

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/internal/question"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/internal/values"
	"github.com/toolhost/toolhost/server/wire"
)

// execute is the last stage: it calls the tool with everything it may use.
func (s *Service) execute(callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		work := c.work
		from := record.Source{ID: work.ID, Session: work.Session, Tool: c.tool.Name, Plugin: c.tool.PluginName()}
		refused := s.audit.Refusals(from)
		defer refused.Write()

		stored := values.Calls{Engine: s.engine, Log: s.log}
		work.Ask, work.Values = question.Checked(work.Ask), stored.Session(work)
		work.Secrets, work.May = s.secrets.For(wire.UserOf(work.Session), configOf(c.tool).Secrets), background.MayAct
		work.CallTool, work.Ungranted = s.callTool(c.tool, work, refused), refused.Add
		work.HTTP = func(x host.Exchange) { s.audit.Exchange(from, x) }
		if c.tool.Plugin != nil {
			work.KV, work.SearchTools = stored.KV(from.Plugin, c.tool.Plugin.Grant.KV, work), s.catalog.SearchFor(c.tool)
		}

		r, err := c.tool.Call(ctx, work)
		if soon(c.tool, err) {
			return reason.Explain(c.tool.Replacing())
		}
		return r, err
	}
}

// checkResult checks the result of a tool.
func checkResult(log *slog.Logger) stage {
	return func(next callFunc) callFunc {
		return func(ctx context.Context, c call) (abi.Result, error) {
			r, err := next(ctx, c)
			if err != nil || r.Kind != abi.Success {
				return r, err
			}
			problems := c.tool.CheckResult(r.Value)
			if len(problems) == 0 {
				return r, nil
			}

			err = fmt.Errorf("%w: the result of %s does not fit its output_schema: %s", host.ErrABI, c.tool.Name, reason.List(problems))
			log.Error("the plugin broke", "plugin", c.tool.PluginName(), "tool", c.tool.Tool.Name, "call", c.work.ID, "error", err)
			return abi.Result{Kind: abi.Internal, Error: abi.InternalMessage, Usage: r.Usage}, err
		}
	}
}
