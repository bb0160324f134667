package mcpapi_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/mcpapi"
	"github.com/toolhost/toolhost/server/vault"
	"github.com/toolhost/toolhost/server/webui"
	"github.com/toolhost/toolhost/server/wire"
)

const secretOfAna = "correct-horse-battery"

// connecting is a service with a plugin that sends a secret of its user to a real server,
// and the page where the secret is set.
type connecting struct {
	t       *testing.T
	service *server.Service
	mcp     *httptest.Server // as the user ana
	seen    chan string      // what the server received
}

func openConnecting(t *testing.T, adapt ...func(*server.Config, *abi.Tool)) *connecting {
	t.Helper()
	c := &connecting{t: t, seen: make(chan string, 10)}
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.seen <- r.Header.Get("Authorization")
		fmt.Fprint(w, "you sent "+r.Header.Get("Authorization"))
	}))
	t.Cleanup(web.Close)

	keys := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(keys, []byte(vault.NewKey()+"\n"), 0o600))
	name, _, _ := strings.Cut(strings.TrimPrefix(web.URL, "https://"), ":")
	secrets, err := vault.New(map[string]vault.Source{
		"example": {Scope: vault.OfUser, Hosts: []string{name}, Place: host.Place{Bearer: true}},
	}, vault.Keys(keys), nil)
	require.NoError(t, err)

	plugin := plugintest.Plugin{Manifest: plugintest.Manifest("asks"), Invoke: plugintest.Do().Use("http", `{"url":"`+web.URL+`/"}`)}
	cfg := server.Config{
		CacheDir: plugintest.CacheDir(), Secrets: secrets,
		Grants: map[string]plugins.Grant{"asks": {HTTP: []host.HTTPRule{{URL: web.URL + "/*", Secret: "example", Private: true}}}},
		Host:   host.Config{Egress: host.Egress{CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})}},
	}
	for _, adapt := range adapt {
		adapt(&cfg, &plugin.Manifest.Tools[0])
	}
	cfg.Folders = []plugins.Folder{{Path: "asks", FS: fstest.MapFS{"asks.wasm": {Data: plugin.Wasm()}}}}
	c.service = open(t, cfg)

	page := httptest.NewServer(webui.NewSecretForm(c.service, nil))
	t.Cleanup(page.Close)
	c.service.SecretLinks().ServeAt(page.URL + "/secret/")
	h, err := mcpapi.NewHandler(c.service, mcpapi.Config{})
	require.NoError(t, err)
	t.Cleanup(h.Close)
	c.mcp = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(identity.NewContext(r.Context(), identity.Caller{User: "ana", Session: "ana/work"})))
	}))
	t.Cleanup(c.mcp.Close)
	return c
}

// call calls the tool with a client of a revision of the protocol.
func (c *connecting) call(version string, can *mcp.ElicitationCapabilities, asked func(p *mcp.ElicitParams) string, complete func(id string)) (text string, isError bool) {
	c.t.Helper()
	options := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{Elicitation: can}}
	if asked != nil {
		options.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			answer := &mcp.ElicitResult{Action: asked(r.Params)}
			if r.Params.Mode == "form" && answer.Action == "accept" {
				answer.Content = map[string]any{"decision": "once"}
			}
			return answer, nil
		}
		options.ElicitationCompleteHandler = func(_ context.Context, r *mcp.ElicitationCompleteNotificationRequest) {
			complete(r.Params.ElicitationID)
		}
	}
	transport := &mcp.StreamableClientTransport{Endpoint: c.mcp.URL}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options).Connect(c.t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(c.t, err)
	defer session.Close()

	r, err := session.CallTool(c.t.Context(), &mcp.CallToolParams{Name: "asks", Arguments: map[string]any{}})
	require.NoError(c.t, err)
	for _, one := range r.Content {
		text += one.(*mcp.TextContent).Text
	}
	return text, r.IsError
}

// fill posts the form of the page.
func (c *connecting) fill(address, value string) (int, error) {
	r, err := http.PostForm(address, url.Values{"value": {value}})
	if err != nil {
		return 0, err
	}
	return r.StatusCode, r.Body.Close()
}

// A call that lacks a secret of its user has the user open the page where it is set, and
// continues then, in both ways of asking.
func TestConnect(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			c := openConnecting(t)
			filled, completed := make(chan error, 1), make(chan string, 1)
			text, isError := c.call(version, &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}, func(p *mcp.ElicitParams) string {
				if p.Mode != "url" || !strings.Contains(p.Message, `asks needs your secret "example" for 127.0.0.1`) {
					filled <- fmt.Errorf("asked %+v", p)
					return "cancel"
				}
				go func() { // the user has agreed, and takes a while
					status, err := c.fill(p.URL, secretOfAna)
					if err == nil && status != http.StatusOK {
						err = fmt.Errorf("status %d", status)
					}
					filled <- err
				}()
				return "accept"
			}, func(id string) { completed <- id })

			require.NoError(t, <-filled)
			require.False(t, isError, text)
			require.Equal(t, "Bearer "+secretOfAna, <-c.seen)
			require.NotContains(t, text, secretOfAna)
			if version == "2025-11-25" {
				require.NotEmpty(t, <-completed)
			}
			list, err := c.service.Secrets("ana").List(t.Context(), false)
			require.NoError(t, err)
			require.True(t, list.Secrets[0].Set)
			_, isError = c.call(version, nil, nil, nil)
			require.False(t, isError, "it is kept")
		})
	}
}

// Where the user refuses or the client cannot open pages, the model reads what to do.
func TestConnectRefused(t *testing.T) {
	open := &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		for name, test := range map[string]struct {
			can    *mcp.ElicitationCapabilities
			answer string
		}{
			"declined":    {open, "decline"},
			"canceled":    {open, "cancel"},
			"only forms":  {&mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}, ""},
			"asks nobody": {nil, ""},
		} {
			t.Run(version+" "+name, func(t *testing.T) {
				c := openConnecting(t)
				text, isError := c.call(version, test.can, func(p *mcp.ElicitParams) string {
					require.NotEmpty(t, test.answer, "the client cannot be asked")
					return test.answer
				}, nil)
				require.True(t, isError)
				require.Regexp(t, `^This tool needs a connection to example\. Ask the user to set it up at http://127\.0\.0\.1:\d+/secret/[A-Z2-7]{26} and then call the tool again\.$`, text)
				require.Empty(t, c.seen)
			})
		}
	}
}

// A held call that lacks a secret of its user says so at once. Once the secret is set and the
// call is approved, it runs once.
func TestHeldCallLacksSecret(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		for _, structured := range []bool{false, true} {
			t.Run(fmt.Sprint(version, " structured ", structured), func(t *testing.T) {
				c := openConnecting(t, func(cfg *server.Config, tool *abi.Tool) {
					cfg.Approve, cfg.Approvals = nil, server.ApprovalPolicy{Ask: true}
					if structured {
						tool.OutputSchema = json.RawMessage(`{"type":"object"}`)
					}
				})
				text, isError := c.call(version, nil, nil, nil)
				require.Equal(t, structured, isError)
				require.Contains(t, text, "It waits until a person approves it")
				found := regexp.MustCompile(`asks may fail, because the secret .{1,2}example.{1,2} has no value: its user sets it at (http[^"]*)`).FindStringSubmatch(text)
				require.NotNil(t, found, text)
				require.Empty(t, c.seen)

				code, err := c.fill(found[1], secretOfAna)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, code)
				waiting, err := c.service.Approvals().List(t.Context(), "", 0)
				require.NoError(t, err)
				require.Len(t, waiting.Approvals, 1)
				id := waiting.Approvals[0].TaskID
				_, err = c.service.Approvals().Decide(t.Context(), id, "operator", wire.Decide{Approve: true})
				require.NoError(t, err)
				_, err = c.service.Session("ana/work").Check(t.Context(), server.CheckRequest{IDs: []string{id}, Wait: server.MaxWait})
				require.NoError(t, err)
				require.Equal(t, "Bearer "+secretOfAna, <-c.seen)
				require.Empty(t, c.seen)

				text, _ = c.call(version, nil, nil, nil)
				require.Contains(t, text, "It waits until a person approves it")
				require.NotContains(t, text, "may fail", "it lacks nothing")
			})
		}
	}
}

// A user who is asked to approve a call that lacks their secret can set it first. The call
// then runs once, and the answer counts, though the question no longer names the secret.
func TestUserLearnsOfSecretWhenAsked(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			c := openConnecting(t, func(cfg *server.Config, _ *abi.Tool) {
				cfg.Approve, cfg.Approvals = nil, server.ApprovalPolicy{Ask: true}
			})
			var asked []string
			text, isError := c.call(version, &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}, func(p *mcp.ElicitParams) string {
				asked = append(asked, p.Message)
				note, _, _ := strings.Cut(p.Message, "\n\nAllow asks")
				_, address, _ := strings.Cut(note, `asks may fail, because the secret "example" has no value: its user sets it at `)
				if code, err := c.fill(address, secretOfAna); err != nil || code != http.StatusOK {
					return "decline"
				}
				return "accept"
			}, func(string) {})
			require.False(t, isError, text)
			require.Len(t, asked, 1)
			require.Equal(t, "Bearer "+secretOfAna, <-c.seen)
			require.Empty(t, c.seen)
		})
	}
}
