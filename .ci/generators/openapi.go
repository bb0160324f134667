// Command openapi calls a server with the client of openapi-generator.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"generated/openapi"
)

func main() {
	if err := call(os.Getenv("URL"), os.Getenv("TOKEN")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func call(url, token string) error {
	cfg := openapi.NewConfiguration()
	cfg.Servers = openapi.ServerConfigurations{{URL: url}}
	c := openapi.NewAPIClient(cfg)
	ctx := context.WithValue(context.Background(), openapi.ContextAccessToken, token)

	tools, _, err := c.ToolsAPI.ListTools(ctx).Execute()
	if err != nil || len(tools.Tools) == 0 {
		return fmt.Errorf("tools: %v, %v", err, tools)
	}
	result, _, err := c.CallsAPI.CallTool(ctx).Call(openapi.Call{Tool: "wordcount", Args: map[string]any{"text": "one two"}}).Execute()
	if err != nil || result.Kind != openapi.KindSuccess || result.Value.(map[string]any)["words"] != 2.0 {
		return fmt.Errorf("call: %v, %v", err, result)
	}

	run, _, err := c.RunsAPI.SpawnRun(ctx).Spawn(openapi.Spawn{Tool: "primes", Args: map[string]any{"limit": 10}}).Execute()
	if err != nil || run.Run == nil {
		return fmt.Errorf("spawn: %v, %v", err, run)
	}
	checked, _, err := c.RunsAPI.GetRun(ctx, run.Run.TaskId).Wait("1m").Execute()
	if err != nil || checked.Status != openapi.SUCCEEDED {
		return fmt.Errorf("check: %v, %v", err, checked)
	}
	planned, _, err := c.RunsAPI.SpawnRun(ctx).ToolhostDryRun("true").Spawn(openapi.Spawn{Tool: "primes", Args: map[string]any{"limit": 10}}).Execute()
	if err != nil || planned.PlannedRun == nil || !planned.PlannedRun.DryRun {
		return fmt.Errorf("dry run: %v, %v", err, planned)
	}

	_, _, err = c.CallsAPI.CallTool(ctx).Call(openapi.Call{Tool: "missing"}).Execute()
	var refused *openapi.GenericOpenAPIError
	if !errors.As(err, &refused) {
		return fmt.Errorf("missing: %v", err)
	}
	if problem, ok := refused.Model().(openapi.Problem); !ok || problem.Code != openapi.CodeNotFound {
		return fmt.Errorf("missing: %s", refused.Body())
	}
	return nil
}
