package host

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/extism"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/egress"
)

// extismRequest is Extism's http_request. It follows redirects, as Extism does, and
// checks each of them. A refused or failed request ends the call with a tool error.
func extismRequest(c *extismCall, k *extism.Kernel, stack []uint64) {
	var in struct {
		URL     string            `json:"url"`
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
	}
	if err := json.Unmarshal(c.block(k, stack[0]), &in); err != nil {
		panic(failTool("the plugin made an http request that is not valid: " + err.Error()))
	}
	request := guestcall.HTTPRequest{Method: strings.ToUpper(in.Method), URL: in.URL, Redirects: egress.MaxRedirects}
	if stack[1] != 0 {
		request.BodyBase64 = bytes.Clone(c.block(k, stack[1]))
	}
	if len(in.Headers) > 0 {
		request.Headers = map[string][]string{}
	}
	for name, value := range in.Headers {
		request.Headers[name] = []string{value}
	}
	k.Free(stack[0])
	k.Free(stack[1])

	c.status, c.headers = 0, nil
	if c.ops.Perform([]byte("http"), guestcall.PlainJSON(request)) < 0 {
		var failure abi.CallFailure
		_ = json.Unmarshal(c.ops.Response, &failure) // written by the host
		panic(failTool(failure.Message))
	}
	var response guestcall.HTTPResponse
	_ = json.Unmarshal(c.ops.Response, &response) // likewise
	c.ops.Response = nil
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

// extismHeaders is Extism's http_headers: the headers of the last response.
func extismHeaders(c *extismCall, k *extism.Kernel, stack []uint64) {
	stack[0] = c.put(k, c.headers)
}

// toolFailure ends a call with a tool error.
type toolFailure struct{ message string }

func (e *toolFailure) Error() string { return e.message }

func failTool(message string) *instance.Stop {
	return &instance.Stop{Reason: &toolFailure{message}}
}
