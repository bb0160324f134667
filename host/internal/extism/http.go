package extism

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/egress"
)

// request is Extism's http_request. It follows redirects, as Extism does, and
// checks each of them. A refused or failed request ends the call with a tool error.
func request(c *Call, k *Kernel, stack []uint64) {
	var in struct {
		URL     string            `json:"url"`
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
	}
	if err := json.Unmarshal(c.block(k, stack[0]), &in); err != nil {
		panic(fail("the plugin made an http request that is not valid: " + err.Error()))
	}
	out := guestcall.HTTPRequest{Method: strings.ToUpper(in.Method), URL: in.URL, Redirects: egress.MaxRedirects}
	if stack[1] != 0 {
		out.BodyBase64 = bytes.Clone(c.block(k, stack[1]))
	}
	if len(in.Headers) > 0 {
		out.Headers = map[string][]string{}
	}
	for name, value := range in.Headers {
		out.Headers[name] = []string{value}
	}
	k.Free(stack[0])
	k.Free(stack[1])

	c.status, c.headers = 0, nil
	var response guestcall.HTTPResponse
	c.perform("http", guestcall.PlainJSON(out), &response)
	body := response.BodyBase64
	if response.Body != nil {
		body = []byte(*response.Body)
	}

	headers := map[string]string{}
	for name, values := range response.Headers {
		headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	c.status, c.headers = response.Status, guestcall.PlainJSON(headers)
	stack[0] = c.put(k, body)
}

// responseHeaders is Extism's http_headers: the headers of the last response.
func responseHeaders(c *Call, k *Kernel, stack []uint64) {
	stack[0] = c.put(k, c.headers)
}

// fail ends a call with a tool error.
func fail(message string) *instance.Stop {
	return &instance.Stop{Reason: &guestcall.ToolFailure{Message: message}}
}
