package web

import "net/http"

// Plugins have no other way to reach the network, so this one is the default.
func init() { http.DefaultTransport = Transport{} }
