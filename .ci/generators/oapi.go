// Command oapi calls a server with the client of oapi-codegen.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"generated/oapi"
)

func main() {
	if err := call(context.Background(), os.Getenv("URL"), os.Getenv("TOKEN")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func call(ctx context.Context, url, token string) error {
	c, err := oapi.NewClientWithResponses(url, oapi.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	if err != nil {
		return err
	}

	tools, err := c.ListToolsWithResponse(ctx, &oapi.ListToolsParams{})
	if err != nil || tools.JSON200 == nil || len(tools.JSON200.Tools) == 0 {
		return fmt.Errorf("tools: %v, %s", err, tools.Body)
	}
	result, err := c.CallToolWithResponse(ctx, &oapi.CallToolParams{}, oapi.Call{Tool: "wordcount", Args: &map[string]any{"text": "one two"}})
	if err != nil || result.JSON200 == nil || result.JSON200.Kind != oapi.KindSuccess || result.JSON200.Value.(map[string]any)["words"] != 2.0 {
		return fmt.Errorf("call: %v, %s", err, result.Body)
	}

	run, err := c.SpawnRunWithResponse(ctx, &oapi.SpawnRunParams{}, oapi.Spawn{Tool: "primes", Args: &map[string]any{"limit": 10}})
	if err != nil || run.JSON201 == nil {
		return fmt.Errorf("spawn: %v, %s", err, run.Body)
	}
	wait := "1m"
	checked, err := c.GetRunWithResponse(ctx, run.JSON201.TaskId, &oapi.GetRunParams{Wait: &wait})
	if err != nil || checked.JSON200 == nil || checked.JSON200.Status != oapi.Succeeded {
		return fmt.Errorf("check: %v, %s", err, checked.Body)
	}

	dry := oapi.SpawnRunParamsToolhostDryRun("true")
	planned, err := c.SpawnRunWithResponse(ctx, &oapi.SpawnRunParams{ToolhostDryRun: &dry}, oapi.Spawn{Tool: "primes", Args: &map[string]any{"limit": 10}})
	if err != nil || planned.JSON200 == nil {
		return fmt.Errorf("dry run: %v, %s", err, planned.Body)
	}
	if plan, err := planned.JSON200.AsPlannedRun(); err != nil || !plan.DryRun {
		return fmt.Errorf("dry run: %v, %s", err, planned.Body)
	}

	missing, err := c.CallToolWithResponse(ctx, &oapi.CallToolParams{}, oapi.Call{Tool: "missing"})
	if err != nil || missing.ApplicationproblemJSON404 == nil || missing.ApplicationproblemJSON404.Code != oapi.CodeNotFound {
		return fmt.Errorf("missing: %v, %s", err, missing.Body)
	}
	return nil
}
