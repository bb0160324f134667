package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
)

// Answers to the questions of a run approve nothing: neither the run itself that is held,
// nor a call below it.
func TestAnswersApproveNothing(t *testing.T) {
	f := serve(t, httpapi.Config{Token: "s3cret"}, "echo", "waits")
	agent := []string{"Authorization", "Bearer s3cret"}
	run := f.ask("POST", "/v1/runs", `{"tool":"waits"}`, agent...)["task_id"].(string)
	for _, key := range []string{"toolhost/approval", "toolhost/approval.1", "decision"} {
		f.do("POST", "/v1/runs/"+run+"/answers", `{"`+key+`":{"action":"accept","content":{"decision":"session"}}}`, agent...)
		got := f.ask("GET", "/v1/runs/"+run, "", agent...)
		require.Equal(t, []any{"queued", "approval"}, []any{got["status"], got["held"]})
	}
	refused, _ := f.do("POST", "/v1/approvals/"+run, `{"approve":true}`, agent...)
	require.Equal(t, http.StatusForbidden, refused.StatusCode)

	kept, text := f.overSocket("POST", "/v1/approvals/"+run, `{"approve":false,"keep":"session"}`)
	require.Equal(t, http.StatusBadRequest, kept.StatusCode)
	require.Contains(t, text, "keep: only an approval can be kept, not a refusal")
}
