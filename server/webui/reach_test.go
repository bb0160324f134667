package webui

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// A waiting call is shown with everything that a decision needs, and the form with the
// token decides on the call as it was shown.
func TestApprovals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "waits", "echo")
		golden(t, "empty-approvals", f.get("/ui/approvals"))
		ask := func(session string) string {
			return f.spawnRequest(session, server.SpawnRequest{Tool: "waits", Args: json.RawMessage(`{"to":"<b>everybody</b>","text":"\u202efdp.exe"}`)})
		}
		id := ask("ana")
		golden(t, "approvals", f.get("/ui/approvals"))
		require.Contains(t, f.get("/"), `<a href="/ui/approvals">1 call waits for approval</a>`)
		require.Contains(t, f.get("/"), "0 waiting for a slot")
		for _, page := range []string{"/", "/ui/runs", "/ui/runs/" + id} {
			require.Regexp(t, `class="state warn">.*</span> waits for approval</span>`, f.get(page))
		}
		require.Contains(t, f.get("/ui/runs/"+id), `Waits for <a href="/ui/approvals#wait-`+id+`">approval</a>`)

		all, err := f.service.Approvals().List(t.Context(), "", 0)
		require.NoError(t, err)
		form := func(token, decision string) string {
			return url.Values{"token": {token}, "decision": {decision}, "fingerprint": {all.Approvals[0].Fingerprint}, "reason": {"not today"}}.Encode()
		}
		for name, test := range map[string]struct {
			form   string
			status int
		}{
			"no token":            {"decision=approve", http.StatusForbidden},
			"another token":       {form("s3cret", "approve"), http.StatusForbidden},
			"no decision":         {form("may approve as well", ""), http.StatusUnprocessableEntity},
			"another fingerprint": {"token=may+approve+as+well&decision=approve&fingerprint=x", http.StatusConflict},
		} {
			require.Equal(t, test.status, f.post("/ui/approvals/"+id, test.form).Code, name)
			require.Equal(t, wire.StatusQueued, f.run(id).Status, name)
		}

		w := f.post("/ui/approvals/"+id, form("may approve as well", "approve"))
		require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		synctest.Wait()
		require.Equal(t, wire.StatusSucceeded, f.run(id).Status)
		require.Equal(t, http.StatusConflict, f.post("/ui/approvals/"+id, form("may approve as well", "refuse")).Code, "it is decided")

		refused := ask("ana")
		require.Equal(t, http.StatusSeeOther, f.post("/ui/approvals/"+refused, form("may approve as well", "refuse")).Code)
		synctest.Wait()
		require.Equal(t, wire.StatusCanceled, f.run(refused).Status)
		require.Contains(t, f.get("/ui/runs/"+refused), "not approved: not today")

		require.Equal(t, http.StatusSeeOther, f.post("/ui/approvals/"+ask("bo"), form("may approve as well", "always")).Code)
		synctest.Wait()
		require.Equal(t, wire.StatusSucceeded, f.run(ask("ana")).Status, "it is kept")
		golden(t, "kept-approvals", f.get("/ui/approvals"))
		require.Equal(t, http.StatusForbidden, f.post("/ui/kept_approvals/waits/revoke", "token=x").Code)
		require.Equal(t, http.StatusSeeOther, f.post("/ui/kept_approvals/waits/revoke", "token=may+approve+as+well").Code)
		require.Equal(t, wire.StatusQueued, f.run(ask("ana")).Status)
		require.NotContains(t, f.logs.String(), "may approve as well")

		f.page = New(f.service, Config{})
		require.Contains(t, f.get("/ui/approvals"), "Decide with <code>toolhost approve</code>")
		require.NotContains(t, f.get("/ui/approvals"), "<form")
		require.Equal(t, http.StatusForbidden, f.post("/ui/approvals/"+id, "decision=approve&token=").Code, "an empty token opens nothing")
	})
}

// The stores of plugins, their values, and how they are removed.
func TestStores(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "keeper")
		golden(t, "empty-stores", f.get("/ui/stores"))
		f.spawn("ana", "keeper")
		golden(t, "stores", f.get("/ui/stores"))
		golden(t, "store", f.get("/ui/stores/keeper"))
		golden(t, "stored", f.get("/ui/stores/keeper/note:1"))
		require.Contains(t, f.get("/ui/stores/keeper?prefix=note"), "note:1")
		require.NotContains(t, f.get("/ui/stores/keeper?prefix=note"), "draft")
		require.Equal(t, http.StatusNotFound, f.do("GET", "/ui/stores/keeper/none", "").Code)
		require.Equal(t, http.StatusUnprocessableEntity, f.do("GET", "/ui/stores/keeper?prefix=%3Cscript%3E", "").Code)

		require.Equal(t, http.StatusSeeOther, f.post("/ui/stores/keeper/values/remove", "session=&key=draft").Code)
		require.NotContains(t, f.get("/ui/stores/keeper"), "draft")
		w := f.post("/ui/stores/keeper/remove", "session=")
		require.Equal(t, "/ui/stores", w.Header().Get("Location"))
		require.Contains(t, f.get("/ui/stores"), "No plugin keeps anything")
	})
}

// Secrets of users are set and removed, and never shown.
func TestSecrets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo")
		golden(t, "secrets", f.get("/ui/secrets"))
		w := f.post("/ui/secrets/example", "user=ana&value=correct-horse-battery")
		require.Equal(t, "/ui/secrets?user=ana", w.Header().Get("Location"))
		golden(t, "secrets-set", f.get("/ui/secrets?user=ana"))
		require.NotContains(t, f.get("/ui/secrets"), "> set<", "it is of another user")
		require.NotContains(t, f.get("/ui/secrets?user=ana")+f.logs.String(), "correct-horse")

		require.Equal(t, http.StatusUnprocessableEntity, f.post("/ui/secrets/example", "user=ana&value=x").Code)
		require.Equal(t, http.StatusUnprocessableEntity, f.post("/ui/secrets/shared", "value=correct-horse-battery").Code)
		require.Equal(t, http.StatusNotFound, f.post("/ui/secrets/none", "value=correct-horse-battery").Code)
		require.Equal(t, http.StatusUnprocessableEntity, f.post("/ui/secrets/example", "user=a/b&value=correct-horse-battery").Code)
		require.Equal(t, http.StatusBadRequest, f.do("GET", "/ui/secrets?user=%3Cscript%3E", "").Code)
		require.Equal(t, http.StatusSeeOther, f.post("/ui/secrets/example/remove", "user=ana").Code)
		require.Contains(t, f.get("/ui/secrets?user=ana"), "missing")
	})
}

// The rules behind the grants of a plugin are its settings, lists by entry.
func TestRulesOf(t *testing.T) {
	all := []Setting{
		{"grants.web.http", `[{"url":"https://a.example/*"},{"url":"https://b.example/*","secret":"token"}]`, "/etc/toolhost.yaml"},
		{"grants.web.clock", "true", "TOOLHOST_GRANTS"}, {"grants.web.env", "LANG=…", "/etc/toolhost.yaml"}, {"grants.web.tools", "[]", "/etc/toolhost.yaml"},
		{"grants.webs.clock", "true", "/etc/toolhost.yaml"}, {"limits.fuel", "1", "default"},
	}
	require.Equal(t, []Setting{
		{"grants.web.http.0", `{"url":"https://a.example/*"}`, "/etc/toolhost.yaml"},
		{"grants.web.http.1", `{"url":"https://b.example/*","secret":"token"}`, "/etc/toolhost.yaml"},
		{"grants.web.clock", "true", "TOOLHOST_GRANTS"}, {"grants.web.env", "LANG=…", "/etc/toolhost.yaml"}, {"grants.web.tools", "[]", "/etc/toolhost.yaml"},
	}, rulesOf("web", all))
	require.Empty(t, rulesOf("none", all))
}
