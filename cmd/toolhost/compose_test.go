package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// TestCompose: the example of several hosts starts the command with flags and variables that
// it has.
func TestCompose(t *testing.T) {
	text, err := os.ReadFile("../../examples/cluster/compose.yaml")
	require.NoError(t, err)
	var file struct {
		Services map[string]struct {
			Build       struct{ Context, Dockerfile string }
			Command     []string
			Environment map[string]string
			Volumes     []string
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	host := file.Services["host"]
	require.FileExists(t, filepath.Join("../../examples/cluster", host.Build.Context, host.Build.Dockerfile))

	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), append(slices.Clone(host.Command), "--help"), nil, &out, &errs), errs.String())
	for name, value := range host.Environment {
		if name != "PGPASSWORD" {
			flags := (&app{}).root().PersistentFlags()
			c, err := loadConfig(flags, []string{name + "=" + strings.ReplaceAll(value, "${TOOLHOST_TOKEN:?choose one of at least 16 characters}", strings.Repeat("x", 32))})
			require.NoError(t, err, name)
			require.NoError(t, c.problems.usage(), name)
		}
	}

	database := file.Services["database"].Environment
	require.Equal(t, "postgres://"+database["POSTGRES_USER"]+"@database/"+database["POSTGRES_DB"], host.Environment["TOOLHOST_ENGINE"])
	for _, volume := range append(host.Volumes, file.Services["balancer"].Volumes...) {
		if from, _, _ := strings.Cut(volume, ":"); from != "./plugins" { // which the user makes
			require.FileExists(t, "../../examples/cluster/"+from)
		}
	}
}
