// Package egress makes the HTTP requests of plugins. It decides which requests the rules of
// a plugin admit, which addresses a connection may reach, and which secrets go into a
// request, and it masks those secrets in responses. It does not depend on plugins or
// WebAssembly.
//
// One [Client] serves a host. For each call to a tool, [Client.Call] makes a [Call]; each of
// its requests is a [Call.Do]:
//
//	policy, err := egress.Compile([]egress.Rule{{URL: "https://api.example.com/v1/*", Secret: "example"}})
//	client, err := egress.New(egress.Config{})
//	call := client.Call(egress.CallConfig{Plugin: "weather", Policy: policy, Secrets: vault})
//	resp, err := call.Do(ctx, &egress.Request{Method: "GET", URL: "https://api.example.com/v1/now"})
//
// Rules for every request and for every hop of a redirect:
//
//   - The most specific rule that admits the URL and the method applies. Without one, the
//     request is refused.
//   - The address that is checked is the one that is dialed. Only public addresses are
//     dialed, unless the rule is private.
//   - Proxy variables in the environment have no effect.
//   - Bodies, headers, time, and the numbers of requests and connections are limited. A body
//     over its limit is an error; nothing is cut.
//   - A secret goes only to its own hosts, and only over https unless its HTTP is set. This
//     is the security boundary of a secret. As a second line of defense, every response and
//     error is masked for the secrets of all rules, in the forms in which servers return them.
//
// URLs:
//
//   - Hosts are compared in lower case and ASCII (IDNA), without a final dot. A host whose
//     last label is a number is an IPv4 address of four decimal numbers, or invalid. IPv6
//     addresses have no zone and contain no IPv4 address.
//   - Names with a dot are resolved as they are, without the system's search domains.
//   - A user, a password, a backslash or a control character makes a URL invalid.
//   - A dot segment makes a URL invalid, even one that would only appear if a server decoded
//     the path again, split it at an encoded slash or removed a parameter. Other encoded
//     slashes stay as they are, and only a final /* admits them.
//   - NAT64 addresses (64:ff9b::/96) count as the addresses they lead to. 6to4, Teredo and
//     other addresses that contain an IPv4 address are never public.
//
// Messages:
//
//   - Plugins cannot set headers that frame a message, speak to a proxy, or name another
//     path or host to a gateway. A header that names another method or URL needs a rule for
//     that.
//   - The host negotiates gzip and decodes it. A call whose rules have a secret gets no
//     other encoding, because that could not be masked. It gets no partial responses either,
//     because a part could contain a part of a secret.
//   - A redirect to another origin carries only headers that cannot be credentials,
//     and 301, 302 and 303 turn POST into GET. A redirect whose location contains a
//     secret is refused, unless it repeats the query of the same origin.
//   - Trailers are dropped. Informational responses count toward the size of the header.
//
// Errors are of these types. Their messages are for an agent: they contain no secret and no
// internal address. Details for the operator's log are in their Detail fields, masked too.
//
//	*Refusal        a rule, or a grant that is missing       abi.CallDenied
//	*RequestError   an invalid request                       abi.CallInvalid
//	*LimitError     a size or a number over its bound        abi.CallLimit
//	*SecretError    a secret without a value; matches        a required connection
//	                ErrNoSecret if it is not set
//	*NetworkError   the network, the server, TLS, a timeout  abi.CallFailed
//	*WaitError      the end of the call, before the request was sent
//	context.Canceled, ErrClosed                              abi.CallCanceled
package egress

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Fixed limits.
const (
	MaxURL             = 8 << 10   // bytes of a URL
	MaxRequestHeaders  = 64        // fields of a request
	MaxHeaderBytes     = 64 << 10  // bytes of the header of a request or a response
	MaxResponseHeaders = 256       // fields of a response
	MaxRedirects       = 10        // hops of one request
	MaxBodyLimit       = 256 << 20 // maximum of Rule.MaxBody, in bytes
	MinSecret          = 6         // bytes of a secret: a shorter one cannot be masked
	MaxSecret          = 16 << 10  // bytes of a secret
)

// DefaultMaxBody is the default of [Rule].MaxBody.
const DefaultMaxBody = 4 << 20

// perHost and perPlugin limit the concurrent requests to one host name and of one plugin. A
// request over the limit waits, which does not count against its own timeout. A free permit
// goes to the client that holds the fewest.
const perHost, perPlugin = 32, 16

// limits holds the limits on a call.
type limits struct {
	requests int           // requests of one call, counting each hop
	bytes    int64         // bytes of all bodies of one call, in both directions
	maxBody  int64         // bytes of one body, in either direction, if the rule has no MaxBody
	timeout  time.Duration // time for one request with its redirects, if it has no timeout of its own
}

var limitsOfCall = limits{requests: 100, bytes: 64 << 20, maxBody: DefaultMaxBody, timeout: 30 * time.Second}

// Config configures how a host reaches the network. The zero value connects
// directly and trusts the system's certificates.
type Config struct {
	// Proxy is the URL of an egress proxy, http or https, with an optional user and
	// password. Requests admitted by a private rule bypass it. Names must resolve here,
	// and to public addresses. The proxy resolves them again, so it has to refuse private
	// addresses itself.
	Proxy string

	// ProxyResolves leaves it to the proxy to resolve names that do not resolve here.
	// Then only the proxy keeps such names from leading to private addresses.
	ProxyResolves bool

	// CA is a bundle of certificates in PEM that are trusted in addition to the
	// system's.
	CA []byte

	// Resolver looks up names. Nil means the system's resolver.
	Resolver *net.Resolver

	// Shared keeps permits free for other clients: one client holds at most three
	// quarters of the permits for a host name, and at most three quarters of those for a
	// plugin.
	Shared bool
}

// CallConfig describes one call to a tool.
type CallConfig struct {
	// Plugin and User separate connections: calls that differ in either of them never
	// share one. User is empty for the operator.
	Plugin, User string

	// Client identifies the client: permits are shared fairly among clients.
	Client string

	// Policy is the plugin's policy. Nil refuses everything.
	Policy *Policy

	// Readonly admits only GET and HEAD.
	Readonly bool

	// Secrets looks up the secrets that rules name. Nil means that there are none.
	Secrets Secrets

	// Observe is called once for each hop, after the hop has ended or was refused, from
	// the goroutine of Do. It may be nil.
	Observe func(Exchange)

	// Shared is the usage of the whole call tree. Nil means that the call stands alone.
	Shared *Shared
}

// Exchange is the audit record of one hop. It has no path, query, header or body.
type Exchange struct {
	Plugin, User   string
	Method         string
	Scheme, Host   string         // Host includes a port other than the default
	Address        netip.AddrPort // address of the peer; zero if nothing was dialed, or if a proxy was used
	Hop            int            // number of redirects before this hop
	Secret         string         // name of the secret that was sent
	Status         int            // status of the response; 0 if there was none
	Sent, Received int64          // sizes of the bodies, in bytes; Received is the size after decompression
	Duration       time.Duration
	Refusal        string // reason of a refusal, for the operator
	Err            string // reason of a failure, for the operator
}

// Request is a request by a plugin.
type Request struct {
	Method string // empty means GET; the case of known methods is ignored
	URL    string // absolute URL
	Header http.Header
	Body   []byte

	// Timeout is the time limit for the request and its redirects, not counting waits for
	// permits. Zero means 30 seconds. The context may end the request earlier.
	Timeout time.Duration

	// Redirects is the maximum number of redirects that Do follows, at most
	// [MaxRedirects]. With zero, a redirect is returned like any other response. A hop
	// to another origin gets only headers that hold no credentials, and each hop is
	// checked like a request of its own.
	Redirects int
}

// idempotent lists the methods that may be repeated: RFC 9110, section 9.2.2.
var idempotent = []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete}

// Repeatable reports whether a request may be repeated when nobody knows whether the server
// received it. That is so if its method, and any method that its header names, are idempotent.
func (r *Request) Repeatable() bool { return repeatable(r.Method, r.Header) }

func repeatable(method string, header http.Header) bool {
	methods := append(overrides(header), strings.ToUpper(cmp.Or(method, http.MethodGet)))
	return !slices.ContainsFunc(methods, func(m string) bool { return !slices.Contains(idempotent, m) })
}

// Response is a complete response. Secrets in it are masked.
type Response struct {
	Status int
	URL    string // URL of the last hop, without secrets
	Header http.Header
	Body   []byte
}
