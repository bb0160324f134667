package egress

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// headerUse is how a header set by a plugin is treated.
type headerUse int

const (
	headerFree    headerUse = iota
	headerRefused           // it frames the message, speaks to a proxy, or names another path or host to gateways
	headerDropped           // the host sets it
	headerMethod            // some servers use its value as the method
	headerURL               // some servers also use its URL
)

var headerUses = map[string]headerUse{
	"accept-encoding":   headerDropped,
	"connection":        headerDropped,
	"content-length":    headerDropped,
	"destination":       headerURL,
	"expect":            headerRefused,
	"forwarded":         headerRefused,
	"host":              headerDropped,
	"http2-settings":    headerRefused,
	"keep-alive":        headerRefused,
	"te":                headerDropped,
	"trailer":           headerRefused,
	"transfer-encoding": headerRefused,
	"upgrade":           headerRefused,
	"x-copy-from":       headerURL,
}

// routed matches the names of headers by which gateways and frameworks route:
// X-Original-URL, but not X-Callback-URL, which servers treat as data.
var routed = regexp.MustCompile(`^x(-original|-rewrite|-forwarded|-override|-envoy-original|-waws-unencoded|-request|-real|-http)?-(host|method|path|prefix|uri|url)$`)

func headerRule(name string) headerUse {
	key := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	switch {
	case strings.HasPrefix(key, "proxy-"):
		return headerRefused
	case !strings.HasPrefix(key, "x-"):
		return headerUses[key]
	case strings.HasSuffix(key, "-method-override"):
		return headerMethod
	case strings.HasSuffix(key, "-copy-source"), strings.HasSuffix(key, "-rename-source"):
		return headerURL
	case !routed.MatchString(key):
		return headerUses[key]
	case strings.HasSuffix(key, "-method"):
		return headerMethod
	}
	return headerRefused
}

// overrides returns the methods by which a header overrides the request's method.
func overrides(h http.Header) []string {
	var methods []string
	for name, values := range h {
		if headerRule(name) == headerMethod {
			for _, v := range values {
				methods = append(methods, strings.ToUpper(strings.TrimSpace(v)))
			}
		}
	}
	return methods
}

// prepareHeader checks the header of a request and returns the header to send.
func prepareHeader(given http.Header) (http.Header, error) {
	fail := func(format string, args ...any) (http.Header, error) {
		return nil, &RequestError{"headers", fmt.Sprintf(format, args...)}
	}

	out := make(http.Header, len(given)+3)
	for name, values := range given {
		if !httpguts.ValidHeaderFieldName(name) {
			return fail("invalid name %.100q", name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return fail("%s has a line break or another control character", name)
			}
		}

		use := headerRule(name)
		switch {
		case use == headerRefused:
			return fail("%s: plugins cannot set it", name)
		case use != headerDropped:
			key := http.CanonicalHeaderKey(name)
			out[key] = append(out[key], values...)
		}
	}

	switch fields, size := sizeOf(given); {
	case fields > MaxRequestHeaders:
		return nil, &LimitError{What: "request headers", Limit: MaxRequestHeaders, Unit: "fields"}
	case size > MaxHeaderBytes:
		return nil, &LimitError{What: "request headers", Limit: MaxHeaderBytes, Unit: "bytes"}
	}
	return out, nil
}

// sizeOf returns the number of fields and bytes of a header.
func sizeOf(h http.Header) (fields, size int) {
	for name, values := range h {
		for _, v := range values {
			fields, size = fields+1, size+len(name)+len(v)+4
		}
	}
	return fields, size
}

// crossOrigin lists the headers that a redirect to another origin keeps. Any other
// could be a credential.
var crossOrigin = []string{
	"Accept", "Accept-Charset", "Accept-Language", "Cache-Control", "Content-Encoding", "Content-Language", "Content-Type",
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Pragma", "Range", "User-Agent",
}

func keepAcrossOrigins(h http.Header) http.Header {
	out := h.Clone()
	maps.DeleteFunc(out, func(name string, _ []string) bool { return !slices.Contains(crossOrigin, name) })
	return out
}

// ofConnection lists the response headers that concern only the connection,
// including those of proxies.
var ofConnection = []string{"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func cleanResponse(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		return slices.Contains(ofConnection, name) || strings.HasPrefix(name, "Proxy-")
	})
}

// badMethods lists the methods that open a tunnel, or echo a request with its secrets.
var badMethods = map[string]bool{"CONNECT": true, "TRACE": true, "TRACK": true}

func checkMethod(method string) error {
	switch {
	case method == "" || len(method) > 32 || strings.ContainsFunc(method, func(r rune) bool { return (r < 'A' || r > 'Z') && r != '-' }):
		return fmt.Errorf("invalid method %.40q: want upper-case letters, such as GET", method)
	case badMethods[method]:
		return fmt.Errorf("%s: no plugin can use this method", method)
	}
	return nil
}
