package httpapi_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// A client of MCP that knows nothing but the URL finds the issuer by what the
// server answers, gets a token that is for this server, and calls a tool with
// it. The client is that of the official SDK, over real connections.
func TestMCPClientLogsIn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	endpoint := "http://" + l.Addr().String() + "/mcp"

	issuer := authorizationServer(t)
	serveTCP(t, l, httpapi.Config{OAuth: &identity.OAuth{Issuer: issuer.URL, Audience: endpoint, Scopes: []string{"tools"}}})

	login, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		PreregisteredClient: &oauthex.ClientCredentials{ClientID: "client", ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: "x"}},
		RedirectURL:         "http://127.0.0.1/callback",
		AuthorizationCodeFetcher: func(_ context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			u, err := url.Parse(args.URL) // a person would log in there
			require.NoError(t, err)
			require.Equal(t, endpoint, u.Query().Get("resource"))
			require.Equal(t, "tools", u.Query().Get("scope"))
			return &auth.AuthorizationResult{Code: "ana", State: u.Query().Get("state")}, nil
		},
	})
	require.NoError(t, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: endpoint, OAuthHandler: login, DisableStandaloneSSE: true}, nil)
	require.NoError(t, err)
	defer session.Close()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"n": 1}})
	require.NoError(t, err)
	require.JSONEq(t, `{"n":1}`, result.Content[0].(*mcp.TextContent).Text)
}

// authorizationServer is an issuer that exchanges any code for a token with the
// requested scopes. The code is the token's subject.
func authorizationServer(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	issuer := httptest.NewServer(mux)
	t.Cleanup(issuer.Close)
	answer := func(path string, v any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v)
		})
	}
	answer("/.well-known/oauth-authorization-server", map[string]any{
		"issuer": issuer.URL, "jwks_uri": issuer.URL + "/keys", "authorization_endpoint": issuer.URL + "/authorize", "token_endpoint": issuer.URL + "/token",
		"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
	})
	answer("/keys", jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &p256Key().PublicKey, KeyID: "p256"}}})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		token := sign(t, jose.ES256, p256Key(), map[string]any{"kid": "p256", "typ": "at+jwt"}, claimsOf(r.Form.Get("code"), map[string]any{
			"iss": issuer.URL, "aud": r.Form.Get("resource"),
		}))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
	})
	return issuer
}

// serveTCP serves a service with the tool echo, over MCP too, to a listener.
func serveTCP(t *testing.T, l net.Listener, cfg httpapi.Config) {
	s, err := server.Open(t.Context(), server.Config{
		Folders:  []plugins.Folder{{Path: "zoo", FS: fstest.MapFS{"echo.wasm": &fstest.MapFile{Data: zoo()["echo"].Wasm()}}}},
		CacheDir: plugintest.CacheDir(),
	})
	require.NoError(t, err)
	h, err := mcpapi.NewHandler(s, mcpapi.Config{})
	require.NoError(t, err)
	cfg.MCP = h
	api := httpapi.New(s, cfg)
	served := make(chan error, 1)
	go func() { served <- api.Serve(l) }()
	t.Cleanup(func() {
		h.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // only a broken server gets there
		defer cancel()
		_ = api.Shutdown(ctx)
		require.NoError(t, <-served)
		require.NoError(t, s.Close(ctx))
	})
}
