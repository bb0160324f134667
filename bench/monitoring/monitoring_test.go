// Package monitoring tests the dashboard and the alert rules of examples/monitoring: each of
// their queries is run, by Prometheus's own engine, on what two live servers say at
// /metrics. It is here so that Prometheus is no dependency of the product.
package monitoring

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/telemetry"
)

const folder = "../../examples/monitoring/"

// A query is one of the dashboard or of the alert rules.
type query struct{ name, expr string }

// dashboard returns the queries of the panels, with the variables as Grafana sets them.
func dashboard(t *testing.T) (all []query) {
	text, err := os.ReadFile(folder + "dashboard.json")
	require.NoError(t, err)
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &d))
	variables := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "5m")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, query{p.Title, variables.Replace(target.Expr)})
		}
	}
	require.NotEmpty(t, all)
	return all
}

// alerts returns the queries of the alert rules.
func alerts(t *testing.T) (all []query) {
	groups, errs := rulefmt.ParseFile(folder+"alerts.yml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.NotEmpty(t, r.Annotations["action"], r.Alert)
			all = append(all, query{r.Alert, r.Expr})
		}
	}
	require.NotEmpty(t, all)
	return all
}

// measured returns the side of the condition of an alert that is measured.
func measured(e parser.Expr) parser.Expr {
	if b, ok := e.(*parser.BinaryExpr); ok && b.Op.IsComparisonOperator() {
		return b.LHS
	}
	return e
}

func TestQueries(t *testing.T) {
	seen := live(t)
	all := map[string]map[string]bool{} // labels by metric
	for name := range seen.series {
		all[name] = map[string]bool{"job": true, "instance": true}
		for _, s := range seen.series[name] {
			for label := range s {
				all[name][label] = true
			}
		}
	}
	storage := promqltest.LoadedStorage(t, seen.load())
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	run := func(q query, expr string) promql.Vector {
		ask, err := engine.NewInstantQuery(t.Context(), storage, nil, expr, time.Unix(0, 0).Add(seen.last()))
		require.NoError(t, err, "%s: %s", q.name, expr)
		defer ask.Close()
		result := ask.Exec(t.Context())
		require.NoError(t, result.Err, "%s: %s", q.name, expr)
		require.Empty(t, result.Warnings, "%s: %s", q.name, expr)
		v, err := result.Vector()
		require.NoError(t, err, "%s: %s", q.name, expr)
		return v
	}

	used := map[string]bool{}
	check := func(q query) parser.Expr {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(q.expr)
		require.NoError(t, err, "%s: %s", q.name, q.expr)
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				require.Contains(t, all, s.Name, "%s: the server has no such metric", q.name)
				used[s.Name] = true
				for _, m := range s.LabelMatchers {
					require.True(t, m.Name == model.MetricNameLabel || all[s.Name][m.Name], "%s: %s has no label %s", q.name, s.Name, m.Name)
				}
			}
			return nil
		})
		return expr
	}

	for _, q := range dashboard(t) {
		check(q)
		require.NotEmpty(t, run(q, q.expr), "the panel %q is empty: %s", q.name, q.expr)
	}
	for _, q := range alerts(t) {
		expr := check(q)
		run(q, q.expr)
		require.NotEmpty(t, run(q, measured(expr).String()), "the alert %s can never fire: %s", q.name, q.expr)
	}

	for _, m := range telemetry.All() {
		name := m.Prometheus()
		if m.Type == telemetry.Histogram {
			require.True(t, used[name+"_count"] || used[name+"_bucket"], "neither the dashboard nor an alert has %s", name)
			name += "_count"
		} else {
			require.True(t, used[name], "neither the dashboard nor an alert has %s", name)
		}
		require.Contains(t, all, name, "the workload does not reach it")
		for label := range all[name] {
			documented := slices.ContainsFunc(m.Labels, func(l2 labelKey) bool { return strings.ReplaceAll(string(l2), ".", "_") == label })
			require.True(t, documented || label == "job" || label == "instance" || label == "le", "docs/metrics.md says nothing of the label %s of %s", label, name)
		}
	}
}

// load is the input of a storage of Prometheus: a sample a minute.
func (s *scrapes) load() string {
	var b strings.Builder
	b.WriteString("load 1m\n")
	for _, name := range slices.Sorted(maps.Keys(s.series)) {
		for key, set := range s.series[name] {
			b.WriteString("  " + name + "{")
			for _, label := range slices.Sorted(maps.Keys(set)) {
				fmt.Fprintf(&b, "%s=%q,", label, set[label])
			}
			b.WriteString("}")
			for n := range s.count {
				if v, ok := s.values[n][key]; ok {
					fmt.Fprintf(&b, " %v", v)
				} else {
					b.WriteString(" _")
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// last is when the last scrape was.
func (s *scrapes) last() time.Duration { return time.Duration(s.count-1) * time.Minute }
