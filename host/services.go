package host

import (
	"context"
	"net"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/internal/egress"
)

// Services holds the services that the caller of the host offers to a call. Unless a field
// says otherwise, a service that is nil is denied to the plugin.
type Services struct {
	// May is called before each operation of the plugin. If it returns an error, the
	// operation is refused as in a call that is being stopped. It must not block. Nil
	// allows all operations.
	May func(ctx context.Context) error
	// Checkpoint is the resume point of a background run.
	Checkpoint *Checkpoint
	// Suspend lets the call give up its instance while it waits. Nil means that the call
	// keeps its instance.
	Suspend Suspension
	// Receive waits for messages to a background run, and returns some or all of those with
	// an id above after, in order. It returns none when wait has passed, ctx is done or the
	// tool is asked to stop. Messages with ids up to after count as acknowledged, and are
	// never returned again. An error that matches ErrDenied means that the call is not a
	// run yet. The plugin does not see any other error: Receive should log it.
	Receive Receive
	// Values holds the session's values.
	Values Values
	// KV holds the values of the plugin's key-value store.
	KV Values
	// Secrets provides the secrets that the plugin's rules add to HTTP requests. A call
	// that needs a secret without a value ends with an [abi.ConnectionRequired] result. Nil
	// means no secrets.
	Secrets Secrets
	// Ask puts questions to the user and waits for the answers. It must return soon
	// after ctx is done, which also happens when the tool is asked to stop. The plugin
	// sees the text of an error that matches [ErrDenied].
	Ask func(ctx context.Context, q abi.Questions) (abi.Answers, error)
	// CallTool calls another tool, and returns its outcome like [Host.Call]. An error of
	// type [*Refusal] says why the call was not made.
	CallTool func(ctx context.Context, t ToolCall) (abi.Result, error)
	// SearchTools finds tools among those that the plugin may call. It must not block.
	SearchTools func(q ToolSearch) abi.FoundTools
}

// Values are values that tools keep for each other in a session, or for later calls of
// their plugin. Each write increases the version of a value. The plugin sees the text
// of an error that is a [*Refusal]. For any other error it sees only that the operation
// failed, so the implementation should log the error.
type Values = guestcall.Values

// Value is a value in [Values].
type Value = guestcall.Value

// AnyVersion matches every version of a value, and a missing value.
const AnyVersion = guestcall.AnyVersion

// Refusal says why a service refuses a request from a plugin. The plugin sees its text.
type Refusal = guestcall.Refusal

// Checkpoint is the resume point of a background run. One attempt saves it for the
// next.
type Checkpoint = guestcall.Checkpoint

// MaxCheckpoint is the maximum size of a checkpoint, in bytes.
const MaxCheckpoint = guestcall.MaxCheckpoint

// Message is a message to a background run.
type Message = guestcall.Message

// Receive is the type of [Services.Receive].
type Receive = guestcall.Receive

// ToolCall is a plugin's call to another tool.
type ToolCall = guestcall.ToolCall

// ToolSearch is a plugin's search for tools.
type ToolSearch = guestcall.ToolSearch

// CrashPolicy says what happens to a nested call if the host crashes and the call that made
// it can be suspended.
type CrashPolicy = guestcall.CrashPolicy

// The crash policies.
const (
	LostOnCrash     = guestcall.LostOnCrash     // part of the call that makes it, and made at most once: it begins only after a state that records it is stored, and a crash loses it
	RepeatedOnCrash = guestcall.RepeatedOnCrash // part of the call that makes it, and repeated when that call continues
	Detached        = guestcall.Detached        // a separate call, which [Suspension.Await] waits for
)

// Egress configures how HTTP requests reach the network. The zero Egress connects
// directly and trusts the system's certificates. Proxy variables in the environment
// have no effect.
//
// If a server sends unsolicited data, net/http writes the beginning of the data to the
// standard logger. It can contain a secret that the server received, so a program
// should discard that log: log.SetOutput(io.Discard).
type Egress struct {
	// Proxy is the URL of an HTTP proxy, http or https, with an optional user and password.
	// Requests that a rule with Private admits bypass the proxy. The proxy must refuse
	// private addresses, because it resolves names itself.
	Proxy string
	// ProxyResolves lets the proxy resolve host names that do not resolve here. Otherwise
	// requests to them fail.
	ProxyResolves bool
	// CA is a PEM bundle of additional trusted certificates.
	CA []byte
	// Resolver resolves host names. Nil means the system's resolver.
	Resolver *net.Resolver
}

func (e Egress) open(shared bool) (*egress.Client, error) {
	return egress.New(egress.Config{Proxy: e.Proxy, ProxyResolves: e.ProxyResolves, CA: e.CA, Resolver: e.Resolver, Shared: shared})
}

// Check returns an error if the proxy or the certificates are invalid.
func (e Egress) Check() error {
	client, err := e.open(false)
	if err == nil {
		client.Close()
	}
	return err
}

// Secrets looks up secrets, Secret is the value of one, and Place is its place in a
// request. An error that matches [ErrNoSecret] means that the secret has no value yet.
// The agent sees the text of any other error.
type (
	Secrets = egress.Secrets
	Secret  = egress.Secret
	Place   = egress.Place
)

// ErrNoSecret is the error for a secret without a value.
var ErrNoSecret = egress.ErrNoSecret

// Exchange is one hop of an HTTP request, for an audit log. It contains no path, query,
// headers or bodies.
type Exchange = egress.Exchange
