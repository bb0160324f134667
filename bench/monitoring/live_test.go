package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fleet"
	"github.com/toolhost/toolhost/internal/pglocal"
	"github.com/toolhost/toolhost/internal/plugintest"
)

type labelKey = attribute.Key

// scrapes are what servers have said at /metrics, several times.
type scrapes struct {
	count  int
	series map[string]map[string]map[string]string // labels by name and text
	values []map[string]float64                    // of each scrape, by text
}

const configuration = `
plugins: [PLUGINS]
starter: true
exec: true
approve: ask
approvals: {token: approve-in-this-test, tools: {multiply: ask}}
metrics: {token: scrape}
token: operate
grants:
  memory: {kv: {mode: write}}
  web: {http: [{url: "https://*/*"}, {url: "SITE/*", private: true}]}
`

// live starts two servers that share a database and one that does not, has clients use them
// three times, and reads their metrics each time.
func live(t *testing.T) *scrapes {
	cluster, err := pglocal.Start("fsync=off")
	require.NoError(t, err)
	t.Cleanup(cluster.Stop)
	folder := t.TempDir()
	program := filepath.Join(folder, "toolhost")
	build := exec.Command("go", "build", "-o", program, "./cmd/toolhost")
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<title>x</title><p>A page.</p>")
	}))
	t.Cleanup(site.Close)
	plugins, config := filepath.Join(folder, "plugins"), filepath.Join(folder, "toolhost.yaml")
	require.NoError(t, os.Mkdir(plugins, 0o700))
	traps := plugintest.Plugin{Manifest: plugintest.Manifest("traps"), Invoke: plugintest.Do().Trap()}
	traps.Manifest.Tools[0].Hints = abi.Hints{Readonly: true} // else it needs approval
	require.NoError(t, os.WriteFile(filepath.Join(plugins, "traps.wasm"), traps.Wasm(), 0o600))
	require.NoError(t, os.WriteFile(config, []byte(strings.NewReplacer("PLUGINS", plugins, "SITE", site.URL).Replace(configuration)), 0o600))

	var servers []string
	for n, engine := range map[int]string{2: cluster.URL, 1: ""} {
		f, err := fleet.Start(t.Context(), fleet.Config{Program: program, Args: []string{"--config", config}, Engine: engine, Folder: filepath.Join(folder, fmt.Sprint(n)), Hosts: n, Log: io.Discard})
		require.NoError(t, err)
		t.Cleanup(f.Close)
		servers = append(servers, f.URLs()...)
	}

	s := &scrapes{series: map[string]map[string]map[string]string{}}
	for n := range 3 {
		require.NoError(t, os.WriteFile(filepath.Join(plugins, fmt.Sprintf("broken%d.wasm", n)), []byte("no module"), 0o600))
		s.values = append(s.values, map[string]float64{})
		for _, url := range servers {
			user{t, url}.work(n, site.URL)
			s.add(t, url)
		}
		s.count++
	}
	return s
}

// user is a client of a server.
type user struct {
	t   *testing.T
	url string
}

func (u user) ask(method, path, body string, headers ...string) (map[string]any, string) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), 5*time.Minute) // only a broken server gets there
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, u.url+path, strings.NewReader(body))
	require.NoError(u.t, err)
	r.Header.Set("Authorization", "Bearer operate")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Toolhost-Session", "monitored")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}

	resp, err := http.DefaultClient.Do(r)
	require.NoError(u.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(u.t, err)
	var answer map[string]any
	_ = json.Unmarshal(text, &answer)
	return answer, string(text)
}

// work makes calls and runs that reach what the metrics are about.
func (u user) work(n int, site string) {
	u.t.Helper()
	for _, call := range []struct{ body, want string }{
		{`{"tool":"add","args":{"a":1,"b":2}}`, `3`},
		{`{"tool":"divide","args":{"a":1,"b":0}}`, `tool_error`},
		{`{"tool":"memory_set","args":{"key":"fact","value":"` + fmt.Sprint(n) + `"}}`, `success`},
		{`{"tool":"web_fetch","args":{"url":"` + site + `/"}}`, `A page`},
		{`{"tool":"exec","args":{"code":"return await tools.add({a: 1, b: 2})"}}`, `3`},
		{`{"tool":"exec","args":{"code":"while (true) {}"},"limits":{"fuel":50000000}}`, `fuel`},
		{`{"tool":"traps"}`, `internal`},
		{`{"tool":"nothing"}`, `not_found`},
	} {
		_, text := u.ask("POST", "/v1/calls", call.body)
		require.Contains(u.t, text, call.want, call.body)
	}
	_, text := u.ask("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		"Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "add")
	require.Contains(u.t, text, `3`)

	run, text := u.ask("POST", "/v1/runs", `{"tool":"report_progress","args":{}}`)
	require.Contains(u.t, run, "task_id", text)
	_, text = u.ask("GET", "/v1/runs/"+run["task_id"].(string)+"?wait=1m", "")
	require.Contains(u.t, text, "succeeded")
	_, text = u.ask("POST", "/v1/calls", `{"tool":"multiply","args":{"a":2,"b":3}}`)
	held := text[strings.Index(text, "bg_"):][:len("bg_")+26]
	_, text = u.ask("POST", "/v1/approvals/"+held, `{"approve":true}`, "Toolhost-Approval-Token", "approve-in-this-test")
	require.Contains(u.t, text, held)
	_, text = u.ask("GET", "/v1/runs/"+held+"?wait=1m", "")
	require.Contains(u.t, text, "succeeded")

	u.reloaded(n + 1)
}

// reloaded waits until the server has noticed that many plugins that are broken.
func (u user) reloaded(plugins int) {
	for {
		_, text := u.ask("GET", "/metrics", "", "Authorization", "Bearer scrape")
		if strings.Contains(text, fmt.Sprintf("\ntoolhost_problems %d\n", plugins)) {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-u.t.Context().Done():
			require.Fail(u.t, "the plugins were not reloaded")
		}
	}
}

// add adds what a server says now.
func (s *scrapes) add(t *testing.T, url string) {
	_, text := user{t, url}.ask("GET", "/metrics", "", "Authorization", "Bearer scrape")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(t, err)

	instance := strings.TrimPrefix(url, "http://")
	s.set("up", instance, nil, "", 1)
	for name, f := range families {
		for _, m := range f.Metric {
			switch {
			case m.Histogram != nil:
				for _, b := range m.Histogram.Bucket {
					s.set(name+"_bucket", instance, m.Label, fmt.Sprint(b.GetUpperBound()), float64(b.GetCumulativeCount()))
				}
				s.set(name+"_count", instance, m.Label, "", float64(m.Histogram.GetSampleCount()))
				s.set(name+"_sum", instance, m.Label, "", m.Histogram.GetSampleSum())
			case m.Counter != nil:
				s.set(name, instance, m.Label, "", m.Counter.GetValue())
			case m.Gauge != nil:
				s.set(name, instance, m.Label, "", m.Gauge.GetValue())
			}
		}
	}
}

func (s *scrapes) set(name, instance string, from []*dto.LabelPair, le string, value float64) {
	set := map[string]string{"job": "toolhost", "instance": instance}
	for _, l := range from {
		set[l.GetName()] = l.GetValue()
	}
	if le != "" {
		set["le"] = le
	}
	key := fmt.Sprint(name, set) // in the order of their names
	if s.series[name] == nil {
		s.series[name] = map[string]map[string]string{}
	}
	s.series[name][key] = set
	s.values[s.count][key] = value
}
