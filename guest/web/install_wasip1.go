package web

import "net/http"

// Plugins have no other network, so this one is the default.
func init() { http.DefaultTransport = Transport{} }
