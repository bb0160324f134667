package main

import (
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/registry"
	"github.com/toolhost/toolhost/internal/signature"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/vault"
)

// config holds everything that an operator can set. Settings of the server go directly
// into the server's Config.
type config struct {
	server server.Config
	grants map[string]*host.Grant // grants by plugin name; copied to server once all of them have been read
	oauth  identity.OAuth

	plugins             []string                      // folders, and references to registries
	plainHTTP           []string                      // registries that are contacted over plain HTTP
	staged              map[string]registry.Reference // new versions that have not been accepted yet, by source
	starter             []string                      // names of plugins from the starter pack; nil: see starters
	data                string                        // data folder; empty if no home folder is known
	engine              string                        // URL of the database; empty means a database in data
	exec                bool
	watch               bool
	compile, approve    string
	logLevel, logFormat string
	listen, addr, token string
	drain               time.Duration
	audit               bool
	egressCA            string // file of certificates
	approvalToken       string
	metricsToken        string
	secrets             map[string]*vault.Source
	secretsKey          string
	trust               signature.Policy
	trustedRoot         string // file with the trusted root
}

// Values of those settings that take a name.
const (
	compileAhead    = "ahead"
	compileOnDemand = "on_demand"
	approveDeny     = "deny"
	approveAuto     = "auto"
	approveAsk      = "ask"
	formatText      = "text"
	formatJSON      = "json"
)

// newConfig returns the default configuration.
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

// setting is one key of the configuration. Tables of settings are used to read, check
// and show the configuration, and to create its JSON Schema and its table in
// docs/settings.md.
type setting struct {
	key    string // key as in a file: log.level, for example, which is TOOLHOST_LOG_LEVEL in the environment
	effect effect
	kind   kind
	to     any // pointer to the field that holds the value
	// builtIn is the default that the packages below use for a zero field, or a note
	// about that default. If it is nil, newConfig sets the default.
	builtIn any
	doc     string // description in Markdown
}

// effect says when a change to a setting takes effect in a running server.
type effect string

const (
	live    effect = "live"    // takes effect at a reload
	restart effect = "restart" // takes effect at a restart
)

// note is a default that is described in words.
type note string

const none = note("none")

// settings returns the table of all settings. Their values go into c.
func settings(c *config) []setting {
	s := &c.server
	runs, most := &s.Runs, &s.MaxLimits

	return []setting{
		{"plugins", live, sources, &c.plugins, none, "Folders of plugins, and plugins of [registries](supplying.md#registries) as `oci://HOST/NAME:TAG`. Subfolders are not read."},
		{"registry.plain_http", live, words, &c.plainHTTP, none, "Registries, as HOST or HOST:PORT, that are contacted over plain HTTP. Registries on this machine always use plain HTTP, all others HTTPS."},
		{"starter", live, starterPack, &c.starter, note("`true` without `plugins`, else `false`"), "Which plugins of the [starter pack](starter.md) are served: `true` for all, `false` for none, or a list of names. In the environment, separate names as in `PATH`."},
		{"exec", live, flag, &c.exec, nil, "Whether agents have the tool `exec`, which runs [scripts](scripts.md) that call their tools. Unless `grants.exec` says otherwise, it gets the clock, questions to the user and every tool."},
		{"watch", live, flag, &c.watch, nil, "Whether `serve` and `mcp` apply changes to plugins and the configuration automatically. See [Reloading](configuration.md#reloading)."},
		{"compile", restart, oneOf(compileAhead, compileOnDemand), &c.compile, nil, "When `serve` and `mcp` compile plugins: `ahead`, in the background once the server is ready, or `on_demand`, each at its first call. See [Compiled code](compiling.md)."},
		{"interpret", live, list, &s.Interpret, none, "Plugins that run in an interpreter and are never compiled, by name; `[\"*\"]` for all. See [Compiled code](compiling.md)."},
		{"data", restart, folder, &c.data, note("`$XDG_DATA_HOME/toolhost` or `~/.local/share/toolhost`"), "Folder for compiled plugins, accepted plugins, and background runs. Toolhost refuses a folder that other users own or can write to."},
		{"engine", restart, text, &c.engine, none, "URL of the PostgreSQL database where `serve` keeps runs, such as `postgres://toolhost@db/toolhost`. Hosts with the same database share their runs: see [Several hosts](cluster.md). Without it, runs are kept in `data`. Use `TOOLHOST_ENGINE`, `PGPASSWORD` or a `.pgpass` to keep the password out of the configuration and the process list."},
		{"lease", restart, durationFrom(time.Second), &runs.LeaseTTL, note("`30s`, or `60s` with `engine`"), "How long a host may lose contact with the database before its runs end and other hosts take them over. It must be longer than a database failover."},
		{"log.level", live, oneOf("debug", "info", "warn", "error"), &c.logLevel, nil, "Lowest level that is logged to stderr. Plugin problems and the announcements of `serve` are always printed."},
		{"log.format", restart, oneOf(formatText, formatJSON), &c.logFormat, nil, "Log format. In `json`, announcements have the level INFO, problems have WARN, and durations are in nanoseconds."},

		{"limits.fuel", live, whole, &s.Limits.Fuel, int64(host.DefaultFuel), "Fuel of a call, in units, unless its tool requests an amount."},
		{"limits.memory", live, size, &s.Limits.Memory, int64(host.DefaultMemory), "Linear memory of a call."},
		{"limits.output", live, size, &s.Limits.Output, int64(host.DefaultOutput), "Bytes that a call can write to all its streams together."},
		{"limits.timeout", live, budget, &s.Limits.Timeout, host.DefaultTimeout, "Time limit of a call whose caller waits for it. `none` means no limit, and also lifts `max_limits.timeout` unless that is set."},
		{"limits.background", live, budget, &s.Limits.Background, background.DefaultTimeout, "Time limit of a background run. `none` means no limit, and also lifts `max_limits.background` unless that is set."},
		{"limits.answer", live, size, &s.Answer, int64(server.DefaultAnswer), "Bytes of a result that an MCP client gets at once. A larger result is stored as that of a run, and the client gets its beginning and a [link to it](mcp.md#large-results)."},
		{"max_limits.fuel", live, whole, &most.Fuel, int64(server.DefaultMaxFuel), "The most fuel that a tool or a caller can request."},
		{"max_limits.memory", live, size, &most.Memory, int64(server.DefaultMaxMemory), "The most memory that a tool or a caller can request."},
		{"max_limits.output", live, size, &most.Output, int64(server.DefaultMaxOutput), "The most output that a tool or a caller can request."},
		{"max_limits.timeout", live, duration, &most.Timeout, background.DefaultMaxTimeout, "The longest time limit that a tool or a caller can request for a call."},
		{"max_limits.background", live, duration, &most.Background, background.DefaultMaxTimeout, "The longest time limit that a tool or a caller can request for a background run."},

		{"background.per_session", live, whole, &runs.PerSession, background.DefaultPerSession, "Maximum of active background runs per session. Parked calls do not count."},
		{"background.per_host", live, whole, &runs.PerHost, background.DefaultPerHost, "Maximum of active background runs of all sessions, parked calls included. In `serve`, one client gets at most three quarters."},
		{"background.parked", live, whole, &runs.Parked, background.DefaultParked, "Maximum of parked calls per session."},
		{"background.schedules", live, anyWhole, &runs.Schedules, background.DefaultSchedules, "Maximum of enabled schedules per session. A negative number allows none and hides schedules from models."},
		{"background.park", live, oneOf(string(server.ParkOverdue), string(server.ParkHinted), string(server.ParkAll), string(server.ParkNever)), &s.Park, nil, "Which long calls continue in the background. `hinted`: calls to tools with the hint `supports_background`. `overdue`: these, and calls to other tools once they reach `limits.timeout`, if neither the tool nor the caller has set a time limit. `all`: every long call. `never`: none."},
		{"background.park_after", live, delay, &s.ParkAfter, server.DefaultParkAfter, "How long a call runs before it is parked. A tool can only request less. `0` means never. This time plus the 5 minutes that a parked call gets must fit into `max_limits.background`."},
		{"background.retention", live, duration, &runs.Retention, background.DefaultRetention, "How long a finished run is kept."},
		{"background.retain_runs", live, whole, &runs.RetainRuns, background.DefaultRetainRuns, "How many finished runs are kept per session."},
		{"background.notice_ttl", live, duration, &runs.NoticeTTL, background.DefaultNoticeTTL, "How long an unacknowledged notice and its run are kept."},
		{"background.output_cap", live, size, &runs.OutputCap, int64(background.DefaultOutputCap), "How much output of a run is kept: its beginning and its end."},
		{"background.log_quota", restart, size, &s.LogQuota, int64(server.DefaultLogQuota), "Disk space for the output of all runs. The logs of the runs that finished first are deleted first."},
		{"background.record_quota", restart, size, &runs.RecordQuota, int64(server.DefaultRecordQuota), "Space for the records of all runs and schedules. In `serve`, one client gets at most three quarters. See [Records](limits.md#records)."},
		{"background.end_session", live, oneOf(string(background.EndParked), string(background.EndAll)), &runs.EndSession, nil, "What the end of a session stops: `parked` for its parked calls, `all` for all its runs."},
		{"background.min_interval", live, duration, &runs.MinInterval, background.DefaultInterval, "The shortest time between two firings of a schedule, in local time of its time zone."},
		{"background.misfire", live, duration, &runs.Misfire, background.DefaultMisfire, "How late a missed firing may still happen. The schedule then fires once, however many firings it has missed."},

		{"audit.enabled", restart, flag, &c.audit, nil, "Whether `serve` and `mcp` keep an [audit log](audit.md) in the data folder."},
		{"audit.file_size", restart, size, &s.Audit.FileSize, int64(audit.DefaultFileSize), "Size at which the audit log continues in a new file."},
		{"audit.files", restart, anyWhole, &s.Audit.Files, audit.DefaultFiles, "How many audit log files are kept. A negative number keeps all."},

		{"serve.listen", restart, text, &c.listen, none, "Address on which `serve` listens in addition to its socket, such as `127.0.0.1:7070`. See [Running a server](operating.md#connect)."},
		{"serve.drain", live, duration, &c.drain, nil, "How long a server waits for calls and runs at shutdown before it interrupts them."},
		{"addr", live, text, &c.addr, note("the socket of the data folder"), "Server that `spawn`, `check`, `wait`, `stop`, `logs`, `tasks`, `remove`, `schedules`, `backup` and others connect to: `host:port`, a URL or a socket path."},
		{"token", restart, text, &c.token, none, "Token that a server accepts from its operator, and that commands send to a server over TCP, [only to the address it was given for](configuration.md#where-a-token-goes). Set `TOOLHOST_TOKEN` to keep it out of files. It needs at least 16 characters if other machines can reach the server."},
		{"oauth.issuer", restart, text, &c.oauth.Issuer, none, "URL of the issuer whose access tokens a server accepts over TCP. Each subject is a user with separate sessions. See [Users](http.md#users)."},
		{"oauth.audience", restart, text, &c.oauth.Audience, none, "URL of this server. Access tokens must be issued for it."},
		{"oauth.jwks", restart, text, &c.oauth.JWKS, note("from the issuer's metadata"), "URL of the issuer's keys."},
		{"oauth.scopes", restart, words, &c.oauth.Scopes, none, "Scopes that every access token needs. In the environment, separate them with spaces."},

		{"host.memory", restart, size, &s.Host.Memory, int64(host.DefaultHostMemory), "Memory of all calls and of the warm instances kept for later calls. In `serve`, one client gets at most three quarters. See [Memory of the host](limits.md#memory-of-the-host)."},
		{"host.total_calls", restart, whole, &s.Host.TotalCalls, host.DefaultTotalCalls, "Direct calls at the same time, of all plugins. Other calls [wait](limits.md#waiting), and their time limit keeps running. In `serve`, one client gets at most three quarters. Background runs have their own limit."},
		{"host.calls", restart, whole, &s.Host.Calls, host.DefaultCalls, "Calls of one plugin at the same time, background runs included. Other calls wait. In `serve`, one client gets at most three quarters."},
		{"host.warm", restart, anyWhole, &s.Host.Warm, host.DefaultWarm, "Warm instances kept per plugin: clean ones, ready for its next calls. A negative number keeps none."},
		{"host.warm_for", restart, duration, &s.Host.WarmFor, host.DefaultWarmFor, "How long a warm instance is kept."},
		{"host.plugin_size", restart, size, &s.Host.PluginSize, int64(host.DefaultPluginSize), "The largest file of a plugin, at most 1 GiB. Plugins in a registry have at most 64 MiB."},
		{"host.cache", restart, size, &s.Host.CacheSize, int64(host.DefaultCacheSize), "Space for compiled code in the data folder. The least recently used is deleted first. See [Compiled code](compiling.md)."},
		{"host.compile_memory", restart, sizeFrom(128 << 20), &s.Host.CompileMemory, int64(host.DefaultCompileMemory), "Memory limit for compiling one plugin, at least 128 MiB."},
		{"host.compile_time", restart, durationFrom(time.Second), &s.Host.CompileTime, host.DefaultCompileTime, "Limit on processor time for compiling one plugin, at least 1s."},
		{"egress.proxy", restart, text, &s.Host.Egress.Proxy, none, "URL of the proxy for HTTP requests of plugins, `http://HOST:PORT` or `https://HOST:PORT`, with an optional user and password. Requests that a `private` rule allows bypass it. Proxy variables in the environment have no effect. The proxy must refuse private addresses: see [Proxies](egress.md#proxies-and-certificates)."},
		{"egress.proxy_resolves", restart, flag, &s.Host.Egress.ProxyResolves, nil, "Whether names that this host cannot resolve go to `egress.proxy`. Then only the proxy keeps them from leading to private addresses."},
		{"egress.ca", restart, folder, &c.egressCA, none, "PEM file with certificates that plugins' requests trust in addition to the system's."},
		{"listing", live, listings, &s.Listing, none, "How models find tools, by name or pattern, such as `{\"*\": search, \"files_*\": list}`. With `list` they get the definition, with `search` they [search](agents.md#many-tools) for it. A name takes precedence over patterns, and a longer pattern over a shorter one. The default is `list`."},
		{"approve", live, oneOf(approveDeny, approveAuto, approveAsk), &c.approve, nil, "What happens to calls that need a person's [approval](approving.md). For tools whose manifest requires approval, `deny` refuses calls and `auto` allows them. `ask` makes calls to these tools and of destructive tools wait for a decision. `toolhost call` counts as approval."},
		{"approvals.tools", live, decisions, &s.Approvals.Tools, none, "Decisions on tools by name or pattern, such as `{files_delete: ask, \"mail_*\": deny}`: `allow`, `ask` or `deny`. A name takes precedence over patterns, a longer pattern over a shorter one, and each of them over hints. `ask` treats a tool like one whose manifest requires approval: see `approve`."},
		{"approvals.by", live, oneOf(string(server.ByUser), string(server.ByOperator)), &s.Approvals.By, string(server.ByUser), "Who decides on calls that wait for [approval](approving.md): `user` asks the user of an MCP client that can ask, and operators can decide too; `operator` leaves every decision to operators."},
		{"approvals.wait", live, duration, &s.Approvals.Wait, server.DefaultApprovalWait, "How long a call waits for approval before it is refused."},
		{"approvals.token", restart, text, &c.approvalToken, none, "Token of at least 16 characters for deciding on approvals over TCP and on the page. Without it, approvals can be decided only over the socket. Set `TOOLHOST_APPROVALS_TOKEN` to keep it out of files."},
		{"metrics.token", restart, text, &c.metricsToken, none, "Token for reading `/metrics` over TCP, and for nothing else. Without it, `/metrics` needs the operator's `token`. Set `TOOLHOST_METRICS_TOKEN` to keep it out of files. See [Metrics](metrics.md#scraping)."},
		{"secrets_key", live, folder, &c.secretsKey, none, "File with the keys for users' secrets: one per line, 32 bytes in base64. The first encrypts. `toolhost secret key FILE` adds a key. See [Users' secrets](secrets.md#users-secrets)."},
		{"secrets.*", live, kind{each: c.secret}, nil, none, "Secrets that the host puts into HTTP requests of plugins, by name."},
		{"trust", live, signers, &c.trust.Rules, none, "Signers whose plugin [signatures](supplying.md#signatures) are accepted: a list of `{minisign: KEY}`, `{sigstore: {issuer, identity}}` and `{key: PEM}`, each optionally limited to `plugins` and `sources`. The setting applies to plugins, the command `toolhost trust` to configurations."},
		{"trusted_root", live, folder, &c.trustedRoot, none, "Sigstore's trusted root, a file `trusted_root.json`. Signers with `sigstore` need it."},
		{"require_signature", live, flag, &c.trust.Require, nil, "Whether plugins without a signature from a signer in `trust` are refused."},
		{"grants.*", live, kind{each: c.grant}, nil, none, "The grants of each plugin, by name. A plugin that is not named gets nothing."},
	}
}

// grant returns the table of a plugin's grants in c.
func (c *config) grant(plugin string) []setting {
	if c.grants[plugin] == nil {
		c.grants[plugin] = new(host.Grant)
	}
	return grantSettings(c.grants[plugin])
}

// secret returns the table of a secret in c.
func (c *config) secret(name string) []setting {
	if c.secrets[name] == nil {
		c.secrets[name] = new(vault.Source)
	}
	return secretSettings(c.secrets[name])
}

// secretSettings returns the table of a secret, with keys relative to secrets.NAME.
// The values go into s.
func secretSettings(s *vault.Source) []setting {
	return []setting{
		{"env", live, text, &s.Env, none, "Environment variable that contains the value."},
		{"file", live, folder, &s.File, none, "File that contains the value. It is read for each request, and refused if other users can read or write it. It may be a link that they cannot replace, like those of Kubernetes."},
		{"command", live, words, &s.Command, none, "Program that prints the value, and its arguments. It runs without a shell for at most 10 seconds, and its output is cached for a minute."},
		{"scope", live, oneOf(string(vault.OfOperator), string(vault.OfUser)), &s.Scope, string(vault.OfOperator), "Who sets the value. `operator`: you, with `env`, `file` or `command`. `user`: each user sets their own."},
		{"hosts", live, words, &s.Hosts, none, "Hosts that the value may be sent to: names, addresses and `*.example.com`."},
		{"bearer", live, flag, &s.Place.Bearer, nil, "Whether the value is sent as `Authorization: Bearer`."},
		{"header", live, text, &s.Place.Header, none, "Header that carries the value."},
		{"query", live, text, &s.Place.Query, none, "Query parameter that carries the value."},
		{"basic", live, text, &s.Place.Basic, none, "User name for `Authorization: Basic`; the value is the password."},
		{"http", live, flag, &s.HTTP, nil, "Whether the value may also be sent over plain HTTP."},
	}
}

// grantSettings returns the table of the grants that a plugin can get, with keys
// relative to grants.PLUGIN. The values go into g.
func grantSettings(g *host.Grant) []setting {
	store := oneOf(string(abi.StoreRead), string(abi.StoreWrite))

	return []setting{
		{"clock", live, flag, &g.Clock, nil, about("clock")},
		{"random", live, flag, &g.Random, nil, about("random")},
		{"ask", live, flag, &g.Ask, nil, about("ask")},
		{"session", live, store, &g.Session, none, about("session")},
		{"kv.mode", live, store, &g.KV.Mode, none, "A key-value store that belongs to the plugin and persists between calls: `read` or `write`. `kv: write` is short for `kv: {mode: write}`."},
		{"kv.scope", live, oneOf(string(host.KVPlugin), string(host.KVSession)), &g.KV.Scope, string(host.KVPlugin), "`plugin`: all sessions share one store. `session`: each session has its own, which is removed when the session ends."},
		{"kv.keys", live, whole, &g.KV.Keys, host.DefaultKVKeys, "The most values that a store can have."},
		{"kv.bytes", live, size, &g.KV.Bytes, int64(host.DefaultKVBytes), "The most bytes that a store can have, keys and values together."},
		{"http", live, httpRules, &g.HTTP, none, about("http") + " A list of `{url, methods, secret, max_body, private}`. See [HTTP](egress.md)."},
		{"files", live, mounts, &g.Files, none, about("files") + " A list of `{dir, path, mode}`: `dir` is the folder, `path` is where the plugin sees it, and `mode` is `read` or `write`."},
		{"env", live, texts, &g.Env, none, about("env")},
		{"tools", live, words, &g.Tools, none, about("tools")},
		{"config", live, texts, &g.Config, none, "Settings of the plugin."},
	}
}

// about returns the description of a capability as a sentence.
func about(name string) string {
	i := slices.IndexFunc(host.Capabilities, func(c host.Capability) bool { return c.Name == name })
	doc := host.Capabilities[i].Doc
	return strings.ToUpper(doc[:1]) + doc[1:] + "."
}
