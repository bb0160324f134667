package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestContainerFile: the commands in the container file are those of the program, and it
// runs as a user who is not root.
func TestContainerFile(t *testing.T) {
	text, err := os.ReadFile("../../deploy/Dockerfile")
	require.NoError(t, err)
	_, last, found := strings.Cut(string(text), "\nFROM scratch\n")
	require.True(t, found, "the last stage has nothing but the program")

	said := map[string]string{}
	for line := range strings.Lines(last) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		said[instruction] = rest
	}
	require.Equal(t, "65532:65532", said["USER"])
	require.Equal(t, "/data", said["VOLUME"])
	require.NotContains(t, said, "RUN", "there is no shell")
	require.Equal(t, `["/toolhost"]`, said["ENTRYPOINT"])

	_, check, found := strings.Cut(said["HEALTHCHECK"], "CMD ")
	require.True(t, found)
	var health, command []string
	require.NoError(t, json.Unmarshal([]byte(check), &health))
	require.NoError(t, json.Unmarshal([]byte(said["CMD"]), &command))
	requireCommand(t, health[1:])
	requireCommand(t, command)
	requireVariables(t, strings.Fields(said["ENV"]))
}

// TestUnit: the unit of systemd starts the program with flags and variables that it has.
// Where systemd is installed, it finds no fault with the unit, and little that the service
// could do beyond what it is for.
func TestUnit(t *testing.T) {
	const unit = "../../deploy/toolhost.service"
	text, err := os.ReadFile(unit)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "ExecStart":
			requireCommand(t, strings.Fields(value)[1:])
		case "Environment":
			requireVariables(t, strings.Fields(value))
		}
	}

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", "--no-pager", unit).CombinedOutput()
	require.NoError(t, err, "%s", out)

	// verify wants the program to be there.
	dir := t.TempDir()
	program, err := os.Executable()
	require.NoError(t, err)
	local := strings.ReplaceAll(string(text), "/usr/local/bin/toolhost", program)
	local = strings.ReplaceAll(local, "man:toolhost(1) ", "")
	file := filepath.Join(dir, "toolhost.service")
	require.NoError(t, os.WriteFile(file, []byte(local), 0o644))
	out, err = exec.Command(analyze, "verify", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "toolhost.service:", "a line that systemd ignores")
}

// TestServiceConfig: the configuration of the service is valid, as it is and with all that
// is commented out.
func TestServiceConfig(t *testing.T) {
	text, err := os.ReadFile("../../deploy/toolhost.yaml")
	require.NoError(t, err)
	dir := t.TempDir()
	in := strings.NewReplacer("/etc/toolhost", dir, "/run/credentials/toolhost.service", dir, "/var/lib/toolhost", filepath.Join(dir, "data"))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "plugins"), 0o700))
	plain := in.Replace(string(text))
	all := regexp.MustCompile(`(?m)^#( *)([a-z_]+:|- )`).ReplaceAllString(plain, "$1$2")
	require.Contains(t, all, "\nsecrets:\n  weather:\n    file: ")

	for _, c := range []struct {
		config string
		args   []string
	}{
		{plain, []string{"config", "--check"}},
		{all, []string{"config"}}, // there is no such plugin
	} {
		file := filepath.Join(dir, "toolhost.yaml")
		require.NoError(t, os.WriteFile(file, []byte(c.config), 0o600))
		code, _, errs := toolhost(t.Context(), append(c.args, "--config", file)...)
		require.Zero(t, code, errs)
		require.Empty(t, errs)
	}
}

// requireCommand requires that the program has a command and its flags.
func requireCommand(t *testing.T, args []string) {
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), append(args, "--help"), nil, &out, &errs), errs.String())
	require.Contains(t, out.String(), "toolhost "+args[0])
}

// requireVariables requires that variables are settings with values that they can have.
func requireVariables(t *testing.T, environ []string) {
	require.NotEmpty(t, environ)
	c, err := loadConfig((&app{}).root().PersistentFlags(), environ)
	require.NoError(t, err)
	require.NoError(t, c.problems.usage())
}
