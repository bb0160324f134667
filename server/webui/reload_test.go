package webui

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/server/wire"
)

func TestReload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo")
		w := f.post("/ui/plugins", "")
		require.Equal(t, http.StatusOK, w.Code)
		inspect(t, w.Body.String())
		require.Contains(t, w.Body.String(), "<p>Reloaded:</p>\n<ul><li><bdi>nothing has changed</bdi></li></ul>")
		delete(f.files, "echo.wasm")
		require.Contains(t, f.post("/ui/plugins", "").Body.String(), "<li><bdi>plugins removed: echo</bdi></li>")
	})
}

// A program that has a configuration reads that again, too, and the page shows the
// differences, or every reason why it was refused.
func TestReloadConfiguration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo")
		change := wire.SettingChange{Key: "limits.timeout", Old: "2m", New: "5m"}
		for _, test := range []struct {
			out    wire.Reload
			err    error
			status int
			want   []string
		}{
			{wire.Reload{Changed: []wire.SettingChange{change}}, nil, http.StatusOK, []string{"Reloaded:", "<li><bdi>limits.timeout: 2m → 5m</bdi></li>"}},
			{wire.Reload{Restart: []wire.SettingChange{{Key: "token"}}, Added: []string{"a", "b"}}, nil, http.StatusOK, []string{"needs a restart: token: changed", "plugins added: a, b"}},
			{wire.Reload{Problems: []wire.FileProblem{{File: "<b>.wasm", Error: "broken"}}}, nil, http.StatusOK, []string{"problem: &lt;b&gt;.wasm: broken"}},
			{wire.Reload{Added: []string{strings.Repeat("x", 2*maxProblem)}}, nil, http.StatusOK, []string{"x…"}},
			{wire.Reload{}, errors.New("watch: expected true\nlimits.fuel: expected a number"), http.StatusUnprocessableEntity, []string{"Reload refused, nothing has changed:", "<li><bdi>watch: expected true</bdi></li><li><bdi>limits.fuel: expected a number</bdi></li>"}},
			{wire.Reload{}, errors.New(strings.Repeat("x\n", maxProblems+2) + "x"), http.StatusUnprocessableEntity, []string{"<li><bdi>3 more lines are not shown</bdi></li>"}},
			{wire.Reload{}, host.ErrClosed, http.StatusServiceUnavailable, []string{"The server is shutting down"}},
		} {
			f.page = New(f.service, Config{Reload: func(ctx context.Context) (wire.Reload, error) {
				require.Nil(t, ctx.Done(), "an operator who leaves does not end it")
				return test.out, test.err
			}})
			w := f.post("/ui/plugins", "")
			require.Equal(t, test.status, w.Code)
			inspect(t, w.Body.String())
			for _, want := range test.want {
				require.Contains(t, w.Body.String(), want)
			}
		}
		require.Contains(t, f.get("/ui/plugins"), "reads the configuration and the folders of plugins again")
	})
}
