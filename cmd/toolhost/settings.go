package main

import (
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/vault"
)

// config is everything an operator can set. Settings of the server go straight
// into its Config.
type config struct {
	server server.Config
	grants map[string]*host.Grant // by the name of the plugin; server has them once all are read
	oauth  identity.OAuth

	plugins             []string // folders
	data                string   // folder; empty if no home folder is known
	exec                bool
	watch               bool
	compile, approve    string
	logLevel, logFormat string
	listen, addr, token string
	drain               time.Duration
	audit               bool
	egressCA            string // file
	approvalToken       string
	secrets             map[string]*vault.Source
	secretsKey          string
}

// Values of settings that are names.
const (
	compileAhead    = "ahead"
	compileOnDemand = "on_demand"
	approveDeny     = "deny"
	approveAuto     = "auto"
	approveAsk      = "ask"
	formatText      = "text"
	formatJSON      = "json"
)

// newConfig returns the configuration that is in force if nobody sets anything.
func newConfig() config {
	return config{
		data: userData(), watch: true, compile: compileAhead, approve: approveDeny,
		logLevel: "warn", logFormat: formatText, drain: 10 * time.Second, audit: true, grants: map[string]*host.Grant{}, secrets: map[string]*vault.Source{},
		server: server.Config{
			Grants: map[string]host.Grant{},
			Host:   host.Config{Compiler: host.ThisProgram()},
			Runs:   server.RunsConfig{EndSession: background.EndParked}, Park: server.ParkOverdue,
		},
	}
}

// setting is one key of the configuration. Tables of settings drive reading,
// checking and showing it, its JSON Schema and its table in docs/operating.md.
type setting struct {
	key  string // as in a file: log.level, which is TOOLHOST_LOG_LEVEL in the environment
	kind kind
	to   any // pointer to the field
	// builtIn is the default that the packages below apply to a zero field, or a
	// note about it. If it is nil, the default is what newConfig sets.
	builtIn any
	doc     string // in Markdown
}

// note is a default in words.
type note string

const none = note("none")

// settings is the table of all settings. The values go to c.
func settings(c *config) []setting {
	s := &c.server
	runs, most := &s.Runs, &s.MaxLimits

	return []setting{
		{"plugins", folders, &c.plugins, none, "Folders of plugins. Subfolders are not read."},
		{"exec", flag, &c.exec, nil, "Whether agents have the tool `exec`, which runs [scripts](scripts.md) that call their tools. Unless `grants.exec` says otherwise, it is granted the clock, questions to the user and every tool."},
		{"watch", flag, &c.watch, nil, "Whether `serve` and `mcp` reload plugins that are added, replaced or removed. See [Reloading](#reloading)."},
		{"compile", oneOf(compileAhead, compileOnDemand), &c.compile, nil, "When `serve` and `mcp` compile plugins: in the background once they are ready, or each at its first call. See [Compiled code](#compiled-code)."},
		{"interpret", list, &s.Interpret, none, "Names of plugins that run in an interpreter and are never compiled; `[\"*\"]` for all. See [Compiled code](#compiled-code)."},
		{"data", folder, &c.data, note("`$XDG_DATA_HOME/toolhost` or `~/.local/share/toolhost`"), "Folder for compiled plugins, pins, and background runs. It is refused if other users own it or can write to it."},
		{"log.level", oneOf("debug", "info", "warn", "error"), &c.logLevel, nil, "Least severe level that is logged to stderr. Problems with plugins and announcements of `serve` are always printed."},
		{"log.format", oneOf(formatText, formatJSON), &c.logFormat, nil, "Format of the log. In `json`, announcements have the level INFO, problems WARN, and durations are in nanoseconds."},

		{"limits.fuel", whole, &s.Limits.Fuel, int64(host.DefaultFuel), "Fuel of a call whose tool asks for no amount, in units."},
		{"limits.memory", size, &s.Limits.Memory, int64(host.DefaultMemory), "Linear memory of a call."},
		{"limits.output", size, &s.Limits.Output, int64(host.DefaultOutput), "Bytes that a call may write to all its streams."},
		{"limits.timeout", budget, &s.Limits.Timeout, host.DefaultTimeout, "Time limit of a call that its caller waits for. `none` is no limit, and lifts `max_limits.timeout` too unless that is set."},
		{"limits.background", budget, &s.Limits.Background, background.DefaultTimeout, "Time limit of a background run. `none` is no limit, and lifts `max_limits.background` too unless that is set."},
		{"max_limits.fuel", whole, &most.Fuel, int64(server.DefaultMaxFuel), "The most fuel that a tool or a caller may ask for."},
		{"max_limits.memory", size, &most.Memory, int64(server.DefaultMaxMemory), "The most memory that a tool or a caller may ask for."},
		{"max_limits.output", size, &most.Output, int64(server.DefaultMaxOutput), "The most output that a tool or a caller may ask for."},
		{"max_limits.timeout", duration, &most.Timeout, background.DefaultMaxTimeout, "The longest time limit of a call that a tool or a caller may ask for."},
		{"max_limits.background", duration, &most.Background, background.DefaultMaxTimeout, "The longest time limit of a background run that a tool or a caller may ask for."},

		{"background.per_session", whole, &runs.PerSession, background.DefaultPerSession, "Active background runs of a session, without its parked calls."},
		{"background.per_host", whole, &runs.PerHost, background.DefaultPerHost, "Active background runs of all sessions, parked calls included. In `serve`, one client gets at most three quarters."},
		{"background.parked", whole, &runs.Parked, background.DefaultParked, "Parked calls of a session."},
		{"background.schedules", anyWhole, &runs.Schedules, background.DefaultSchedules, "Enabled schedules of a session. A negative number allows none, and models do not read of them."},
		{"background.park", oneOf(string(server.ParkOverdue), string(server.ParkHinted), string(server.ParkAll), string(server.ParkNever)), &s.Park, nil, "Which long calls continue in the background. `overdue`: those of tools with the hint `supports_background`, and any other at `limits.timeout`, unless its tool or its caller has set a time limit. `hinted`: only the former. `all`, or `never`."},
		{"background.park_after", delay, &s.ParkAfter, server.DefaultParkAfter, "How long a call runs before it is parked; a tool can only ask for less. `0` is never. This time and the 5 minutes that a parked call gets must fit into `max_limits.background`."},
		{"background.retention", duration, &runs.Retention, background.DefaultRetention, "How long finished runs are kept."},
		{"background.retain_runs", whole, &runs.RetainRuns, background.DefaultRetainRuns, "How many finished runs of a session are kept."},
		{"background.notice_ttl", duration, &runs.NoticeTTL, background.DefaultNoticeTTL, "How long an unacknowledged notice is kept, and its run with it."},
		{"background.output_cap", size, &runs.OutputCap, int64(background.DefaultOutputCap), "Output that is kept of a run: its beginning and its end."},
		{"background.log_quota", size, &s.LogQuota, int64(server.DefaultLogQuota), "Output of all runs on disk. The logs of runs that finished first are deleted first."},
		{"background.record_quota", size, &runs.RecordQuota, int64(server.DefaultRecordQuota), "Records of all runs and schedules. In `serve`, one client gets at most three quarters. See [Records](#records)."},
		{"background.end_session", oneOf(string(background.EndParked), string(background.EndAll)), &runs.EndSession, nil, "What the end of a session stops: its parked calls, or all its runs."},
		{"background.min_interval", duration, &runs.MinInterval, background.DefaultInterval, "The shortest time between two firings of a schedule, by the clock of its time zone."},
		{"background.misfire", duration, &runs.Misfire, background.DefaultMisfire, "How late a missed firing is still made up for. However many were missed, the schedule fires once."},

		{"audit.enabled", flag, &c.audit, nil, "Whether `serve` and `mcp` keep an [audit log](#the-audit-log) in the data folder."},
		{"audit.file_size", size, &s.Audit.FileSize, int64(audit.DefaultFileSize), "Size at which the next file of the audit log begins."},
		{"audit.files", anyWhole, &s.Audit.Files, audit.DefaultFiles, "How many files of the audit log are kept. A negative number keeps all."},

		{"serve.listen", text, &c.listen, none, "Address at which `serve` listens besides its socket, such as `127.0.0.1:7070`. See [Serving](#serving)."},
		{"serve.drain", duration, &c.drain, nil, "How long a server that shuts down waits for calls and runs before it interrupts them."},
		{"addr", text, &c.addr, note("the socket of the data folder"), "Server that `spawn`, `check`, `wait`, `stop`, `logs`, `tasks`, `remove` and `schedules` talk to: `host:port`, a URL or the path of a socket."},
		{"token", text, &c.token, none, "Token that commands send to a server over TCP, [only to the address it was given for](#where-a-token-goes), and that a server accepts from its operator. Set `TOOLHOST_TOKEN` to keep it out of files. A server that other machines can reach needs 16 characters or more."},
		{"oauth.issuer", text, &c.oauth.Issuer, none, "URL of the issuer whose access tokens a server accepts over TCP. Each subject is a user with sessions of its own. See [Users](http.md#users)."},
		{"oauth.audience", text, &c.oauth.Audience, none, "URL of this server that access tokens must be issued for."},
		{"oauth.jwks", text, &c.oauth.JWKS, note("from the issuer's metadata"), "URL of the issuer's keys."},
		{"oauth.scopes", words, &c.oauth.Scopes, none, "Scopes that every access token needs. In the environment they are separated by spaces."},

		{"host.memory", size, &s.Host.Memory, int64(host.DefaultHostMemory), "Memory of all calls and of the instances kept for the next ones. See [Memory of the host](#memory-of-the-host)."},
		{"host.total_calls", whole, &s.Host.TotalCalls, host.DefaultTotalCalls, "Direct calls at a time, of all plugins. Others [wait](#waiting) while their time runs. In `serve`, one client gets at most three quarters. Background runs have their own limit."},
		{"host.calls", whole, &s.Host.Calls, host.DefaultCalls, "Calls of one plugin at a time, background runs included. Others wait. In `serve`, one client gets at most three quarters."},
		{"host.warm", anyWhole, &s.Host.Warm, host.DefaultWarm, "Clean instances of a plugin that are kept for its next calls. A negative number keeps none."},
		{"host.warm_for", duration, &s.Host.WarmFor, host.DefaultWarmFor, "How long a clean instance is kept."},
		{"host.cache", size, &s.Host.CacheSize, int64(host.DefaultCacheSize), "Compiled code in the data folder. The least recently used is deleted first. See [Compiled code](#compiled-code)."},
		{"host.compile_memory", sizeFrom(128 << 20), &s.Host.CompileMemory, int64(host.DefaultCompileMemory), "Memory that compiling one plugin may take, at least 128 MiB."},
		{"host.compile_time", durationFrom(time.Second), &s.Host.CompileTime, host.DefaultCompileTime, "Processor time that compiling one plugin may take, at least 1s."},
		{"egress.proxy", text, &s.Host.Egress.Proxy, none, "URL of the proxy that HTTP requests of plugins go through, `http://HOST:PORT` or `https://HOST:PORT`, with an optional user and password. Requests of private rules do not. The environment names no proxy."},
		{"egress.ca", folder, &c.egressCA, none, "File of certificates in PEM that requests of plugins trust besides the system's."},
		{"listing", listings, &s.Listing, none, "How models learn of tools, by name or pattern, such as `{\"*\": search, \"files_*\": list}`: `list` gives them the definition, `search` lets them [find](agents.md#many-tools) it. A name wins over patterns, a longer pattern over a shorter one. Tools that are not named are listed."},
		{"approve", oneOf(approveDeny, approveAuto, approveAsk), &c.approve, nil, "What happens to calls that need a person's [approval](#approvals): `deny` refuses them and `auto` makes them, both for tools whose manifest requires approval; `ask` waits for an answer, also for destructive tools. `toolhost call` counts as approval."},
		{"approvals.tools", decisions, &s.Approvals.Tools, none, "Decisions on tools by name or pattern, such as `{files_delete: ask, \"mail_*\": deny}`: `allow`, `ask` or `deny`. A name wins over patterns, a longer pattern over a shorter one, and all of them over hints."},
		{"approvals.wait", duration, &s.Approvals.Wait, server.DefaultApprovalWait, "How long a call waits for approval before it is refused."},
		{"approvals.token", text, &c.approvalToken, none, "Token with which approvals are decided over TCP. Without it they are decided over the socket only. Set `TOOLHOST_APPROVALS_TOKEN` to keep it out of files."},
		{"secrets_key", folder, &c.secretsKey, none, "File with the keys that encrypt the secrets of users: one a line, 32 bytes in base64. The first encrypts. `toolhost secret key FILE` adds one. See [Secrets](#secrets)."},
		{"secrets.*", kind{each: c.secret}, nil, none, "Secrets that go into HTTP requests of plugins, by their names."},
		{"grants.*", kind{each: c.grant}, nil, none, "What each plugin is granted, by its name. A plugin that is not named gets nothing."},
	}
}

// grant is the table of what is granted to a plugin.
func (c *config) grant(plugin string) []setting {
	if c.grants[plugin] == nil {
		c.grants[plugin] = new(host.Grant)
	}
	return grantSettings(c.grants[plugin])
}

// secret is the table of a secret.
func (c *config) secret(name string) []setting {
	if c.secrets[name] == nil {
		c.secrets[name] = new(vault.Source)
	}
	return secretSettings(c.secrets[name])
}

// secretSettings is the table of a secret, as keys of secrets.NAME. The values go to s.
func secretSettings(s *vault.Source) []setting {
	return []setting{
		{"env", text, &s.Env, none, "Variable of the environment that has the value."},
		{"file", folder, &s.File, none, "File that has the value. It is read each time, and refused if other users can read or write it. It may be a link that they cannot replace, as those of Kubernetes are."},
		{"command", words, &s.Command, none, "Program and arguments that print the value, without a shell. It has 10 seconds, and its output is kept for a minute."},
		{"scope", oneOf(string(vault.OfOperator), string(vault.OfUser)), &s.Scope, string(vault.OfOperator), "Whose the value is: `operator`, or `user`: each user sets their own, without `env`, `file` and `command`."},
		{"hosts", words, &s.Hosts, none, "Hosts that the value may go to: names, addresses and `*.example.com`."},
		{"bearer", flag, &s.Place.Bearer, nil, "Whether the value goes into `Authorization: Bearer`."},
		{"header", text, &s.Place.Header, none, "Header that the value goes into."},
		{"query", text, &s.Place.Query, none, "Parameter of the query that the value goes into."},
		{"basic", text, &s.Place.Basic, none, "User that the value is the password of, in `Authorization: Basic`."},
		{"http", flag, &s.HTTP, nil, "Whether the value may go over plain HTTP too."},
	}
}

// inner matches where the later words of a Go name begin.
var inner = regexp.MustCompile(`([a-z])([A-Z])`)

// grantSettings is the table of what can be granted to a plugin, as keys of
// grants.PLUGIN: the fields of a Grant, by their types. The values go to g.
func grantSettings(g *host.Grant) (table []setting) {
	docs := map[string]string{"config": "settings of the plugin"}
	for _, c := range host.Capabilities {
		docs[c.Name] = c.Doc
	}

	fields := reflect.ValueOf(g).Elem()
	for i := range fields.NumField() {
		if kv, ok := fields.Field(i).Addr().Interface().(*host.KV); ok {
			table = append(table, kvSettings(kv)...)
			continue
		}
		key := strings.ToLower(inner.ReplaceAllString(fields.Type().Field(i).Name, "${1}_$2"))
		s := setting{key: key, to: fields.Field(i).Addr().Interface(), doc: sentence(docs[key])}
		switch s.to.(type) {
		case *bool:
			s.kind = flag
		case *abi.StoreMode:
			s.kind, s.builtIn = oneOf(string(abi.StoreRead), string(abi.StoreWrite)), none
		case *map[string]string:
			s.kind, s.builtIn = texts, none
		case *[]string:
			s.kind, s.builtIn = words, none
		case *[]host.HTTPRule:
			s.kind, s.builtIn = httpRules, none
			s.doc += " A list of `{url, methods, secret, max_body, private}`. See [HTTP](#http)."
		case *[]host.Mount:
			s.kind, s.builtIn = mounts, none
			s.doc += " A list of `{dir, path, mode}`: `dir` is the folder, `path` is where the plugin sees it, and `mode` is `read` or `write`."
		}
		table = append(table, s)
	}
	return table
}

func kvSettings(kv *host.KV) []setting {
	return []setting{
		{"kv.mode", oneOf(string(abi.StoreRead), string(abi.StoreWrite)), &kv.Mode, none, "A key-value store of the plugin's own, which is kept for later calls: `read` or `write`."},
		{"kv.scope", oneOf(string(host.KVPlugin), string(host.KVSession)), &kv.Scope, string(host.KVPlugin), "Whether all sessions share the store, or each session has its own, which ends with it: `plugin` or `session`."},
		{"kv.keys", whole, &kv.Keys, host.DefaultKVKeys, "The most values in a store."},
		{"kv.bytes", size, &kv.Bytes, int64(host.DefaultKVBytes), "The most bytes of all values of a store, with their keys."},
	}
}

func sentence(phrase string) string {
	if phrase == "" {
		return ""
	}
	return strings.ToUpper(phrase[:1]) + phrase[1:] + "."
}
