package host_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
)

type secretCase struct {
	name  string
	steps []step
}

func secretCases() []secretCase {
	quoted, _ := json.Marshal(secretValue)
	inJSON := string(quoted)
	var escaped strings.Builder // every character as JSON can write it
	for _, r := range secretValue {
		fmt.Fprintf(&escaped, `\u%04x`, r)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte("xy" + secretValue + "z"))
	used := fetches("/used")
	after := func(steps ...step) []step {
		return append([]step{used}, append(steps, writes(abi.StreamResult, "1"))...)
	}
	letters := []step{used}
	for _, b := range []byte("a " + secretValue + " z") {
		letters = append(letters, writes(abi.StreamOutput, string(b)))
	}
	ask, _ := json.Marshal(abi.Questions{Questions: map[string]abi.Question{"q": {Message: secretValue, Schema: json.RawMessage(`{"type":"object"}`)}}})

	return slices.Concat([]secretCase{
		{"echo in a body", []step{fetches("/body"), results}},
		{"echo in a header", []step{fetches("/header"), results}},
		{"echo in the name of a header", []step{fetches("/header-name"), results}},
		{"echo in base64, not aligned", []step{fetches("/base64"), results}},
		{"echo in hexadecimal", []step{fetches("/hex"), results}},
		{"echo in JSON", []step{fetches("/json"), results}},
		{"echo in gzip", []step{fetches("/gzip"), results}},
		{"echo in two chunks", []step{fetches("/chunks"), results}},
		{"echo in an error page", []step{fetches("/error"), results}},
		{"echo in a body that is cut", []step{fetches("/cut"), results}},
		{"echo of a query", []step{fetches("/query"), results}},
		{"a redirect as a response", []step{fetches("/redirect"), results}},
		{"a redirect that is followed", []step{does("http", `{"url":"SERVER/redirect","redirects":3}`), results}},
		{"two halves, joined in the error", []step{fetches("/first-half"), joins(abi.StreamError, 12), fetches("/second-half"), joins(abi.StreamError, int64(len(url.PathEscape(secretValue))-12)), returns(1)}},
		{"two halves, joined in the live output", after(fetches("/first-half"), joins(abi.StreamOutput, 12), fetches("/second-half"), joins(abi.StreamOutput, int64(len(url.PathEscape(secretValue))-12)))},
	}, []secretCase{
		{"a result", []step{used, writes(abi.StreamResult, `{"a":`+inJSON+`,"b":[1,"<x>"]}`)}},
		{"a result in two writes", []step{used, writes(abi.StreamResult, `{"a":`+inJSON[:7]), writes(abi.StreamResult, inJSON[7:]+`}`)}},
		{"a result in unusual escapes", []step{used, writes(abi.StreamResult, `{"`+escaped.String()+`":["x `+escaped.String()+`"]}`)}},
		{"an error", []step{used, writes(abi.StreamError, "no: "+secretValue), returns(1)}},
		{"a panic", []step{used, writes(abi.StreamError, "panic: "+secretValue), returns(2)}},
		{"last words", []step{used, writes(abi.StreamStderr, "panic: "+secretValue), {"", func(int64, int64) code { return unreachable() }}}},
		{"a connection", []step{used, writes(abi.StreamError, `{"provider":`+inJSON+`,"subject":`+inJSON+`,"setup_url":"https://example.com/?q=`+url.QueryEscape(secretValue)+`"}`), returns(3)}},
		{"live output", after(writes(abi.StreamOutput, "key: "+secretValue+"\n"))},
		{"live output in two writes", after(writes(abi.StreamOutput, "key: "+secretValue[:5]), writes(abi.StreamOutput, secretValue[5:]+"\n"))},
		{"live output byte by byte", append(letters, writes(abi.StreamResult, "1"))},
		{"live output that only begins like it", after(writes(abi.StreamOutput, "a "+secretValue[:3]), writes(abi.StreamOutput, "x"), writes(abi.StreamStderr, "y "+secretValue[:2]))},
		{"live errors in base64", after(writes(abi.StreamStderr, encoded[:10]), writes(abi.StreamStderr, encoded[10:]))},
		{"progress", after(step{"at " + secretValue, func(at, size int64) code { return drop(progress(1, 2, at, size)) }})},
		{"a status", after(does("report", `{"status":`+inJSON+`}`))},
		{"a status with characters that are not seen", after(does("report", `{"status":"`+strings.Replace(inJSON[1:len(inJSON)-1], "of", "o\u200bf", 1)+`"}`))},
		{"a unit and a summary", after(does("report", `{"unit":`+inJSON+`,"summary":`+inJSON+`}`))},
		{"the plugin's log", after(writes(abi.StreamWarn, "key "+secretValue))},
	}, []secretCase{
		{"content", after(writes(abi.StreamContent, `{"type":"text","text":`+inJSON+`}`))},
		{"content, an embedded text", after(writes(abi.StreamContent, `{"type":"resource","uri":"note://1","text":`+inJSON+`}`))},
		{"content, the bytes of an image", after(writes(abi.StreamContent, `{"type":"image","mimeType":"image/png","data":"`+encoded+`"}`))},
		{"content, an address", after(writes(abi.StreamContent, `{"type":"resource_link","name":"x","uri":"https://example.com/`+url.PathEscape(secretValue)+`"}`))},
		{"content, the name of a link", after(writes(abi.StreamContent, `{"type":"resource_link","name":`+inJSON+`,"uri":"https://example.com/"}`))},
		{"kv, a value", after(does("kv.set", `{"key":"a","value":{"b":`+inJSON+`}}`))},
		{"kv, a value in unusual escapes", after(does("kv.set", `{"key":"a","value":"`+escaped.String()+`"}`))},
		{"kv, a value in base64", after(does("kv.set", `{"key":"a","value":"`+encoded+`"}`))},
		{"kv, a key", after(does("kv.delete", `{"key":"`+hex.EncodeToString([]byte(secretValue))+`"}`))},
		{"a value of the session", after(does("session.set", `{"key":"a","value":`+inJSON+`}`))},
		{"a checkpoint", after(does("checkpoint.save", `{"data":"`+encoded+`"}`))},
		{"the arguments of a tool", after(does("tool.call", `{"tool":"other","args":{"a":`+inJSON+`}}`))},
		{"the name of a tool", after(does("tool.call", `{"tool":`+inJSON+`}`))},
		{"a search for tools", after(does("tool.search", `{"query":`+inJSON+`}`))},
		{"a question", after(does("ask", string(ask)))},
		{"the name of a secret", after(does("secret.exists", `{"name":`+inJSON+`}`))},
		{"an operation", after(does(secretValue, `{}`))},
		{"another server's log, the query", after(does("http", `{"url":"SERVER/other?q=`+url.QueryEscape(secretValue)+`"}`))},
		{"another server's log, one escape", after(does("http", `{"url":"SERVER/other?q=`+strings.Replace(url.QueryEscape(secretValue), "k3y", "%6b3y", 1)+`"}`))},
		{"another server's log, the path", after(does("http", `{"url":"SERVER/`+url.PathEscape(secretValue)+`"}`))},
		{"another server, a header", after(does("http", `{"url":"SERVER/other","headers":{"X-Own":[`+inJSON+`]}}`))},
		{"another server, a body", after(does("http", `{"url":"SERVER/other","method":"POST","body":`+inJSON+`}`))},
		{"another server, a body in base64", after(does("http", `{"url":"SERVER/other","method":"POST","body_base64":"`+encoded+`"}`))},
		{"a query twice", []step{used, does("http", `{"url":"SERVER/query?a=1"}`), results}},
	}, []secretCase{
		{"kept by an earlier attempt", []step{does("checkpoint.load", `{}`), writes(abi.StreamResult, inJSON)}},
		{"kept by an earlier call", []step{does("kv.get", `{"key":"a"}`), writes(abi.StreamOutput, secretValue), writes(abi.StreamResult, inJSON)}},
		{"kept by the session", []step{does("session.get", `{"key":"a"}`), writes(abi.StreamError, secretValue), returns(1)}},
		{"used by an inner call", []step{does("tool.call", `{"tool":"other"}`), writes(abi.StreamResult, inJSON)}},
		{"used by the outer call", after(does("tool.call", `{"tool":"other"}`), writes(abi.StreamInfo, secretValue))},
		{"several refusals", after(does("kv.set", `{"key":"a","value":`+inJSON+`}`), does("kv.set", `{"key":"a","value":`+inJSON+`}`), does("kv.set", `{"key":"a","value":"fine"}`))},
	})
}
