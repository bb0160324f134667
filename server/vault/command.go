package vault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// inherited lists the environment variables passed to a command. None of them holds a
// secret.
var inherited = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TEMP"}

var errTooLong = errors.New("it prints too much")

// run returns the output of a command. Its errors do not contain that output.
func run(ctx context.Context, argv []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, CommandTime)
	defer cancel()

	out := &capped{}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{}
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Stdout = out
	cmd.WaitDelay = time.Second // for a child process that keeps the output open

	err := cmd.Run()
	switch {
	case out.full:
		return "", fmt.Errorf("command %s: %w", argv[0], errTooLong)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", fmt.Errorf("command %s: it took longer than %s", argv[0], CommandTime)
	case err != nil:
		return "", fmt.Errorf("command %s: %w", argv[0], err)
	}
	return string(out.data), nil
}

// capped keeps at most maxValue bytes of what is written to it.
type capped struct {
	data []byte
	full bool
}

func (c *capped) Write(p []byte) (int, error) {
	if len(c.data)+len(p) > maxValue {
		c.full = true
		return 0, errTooLong
	}
	c.data = append(c.data, p...)
	return len(p), nil
}
