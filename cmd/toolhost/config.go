package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
)

// config is everything an operator can set. The names are those of the file;
// in the environment log.level is TOOLHOST_LOG_LEVEL.
type config struct {
	Plugins    []string               `koanf:"plugins"`   // folders
	Watch      bool                   `koanf:"watch"`     // serve and mcp reload plugins that change
	Compile    string                 `koanf:"compile"`   // ahead or on_demand: when serve and mcp compile plugins
	Interpret  []string               `koanf:"interpret"` // names of plugins that are never compiled; * is all
	Data       string                 `koanf:"data"`      // folder for what is kept between runs
	Log        logConfig              `koanf:"log"`
	Limits     limitsConfig           `koanf:"limits"`     // where a tool asks for nothing; 0 is the built-in default
	MaxLimits  limitsConfig           `koanf:"max_limits"` // the most a tool or a caller may ask for
	Background backgroundConfig       `koanf:"background"`
	Host       hostConfig             `koanf:"host"`
	Approve    string                 `koanf:"approve"` // deny or auto: tools that ask for a person's approval
	Serve      serveConfig            `koanf:"serve"`
	Addr       string                 `koanf:"addr"`   // of the server that spawn, check and the like talk to
	Token      string                 `koanf:"token"`  // what clients send to a server over TCP
	OAuth      oauthConfig            `koanf:"oauth"`  // whose access tokens a server takes beside it
	Grants     map[string]grantConfig `koanf:"grants"` // by plugin
}

type serveConfig struct {
	Listen string        `koanf:"listen"` // host:port beside the socket
	Drain  time.Duration `koanf:"drain"`  // how long a server that ends waits for what runs
}

// oauthConfig is identity.OAuth; all empty is none.
type oauthConfig struct {
	Issuer   string   `koanf:"issuer"`   // URL
	Audience string   `koanf:"audience"` // URL of this server
	JWKS     string   `koanf:"jwks"`     // URL of the issuer's keys; empty is what its metadata says
	Scopes   []string `koanf:"scopes"`   // all of them are required
}

// config is nil if there is none.
func (c oauthConfig) config() *identity.OAuth {
	if c.Issuer == "" && c.Audience == "" && c.JWKS == "" && len(c.Scopes) == 0 {
		return nil
	}
	return &identity.OAuth{Issuer: c.Issuer, Audience: c.Audience, JWKS: c.JWKS, Scopes: c.Scopes}
}

type logConfig struct {
	Level  string `koanf:"level"`  // debug, info, warn or error
	Format string `koanf:"format"` // text or json
}

type limitsConfig struct {
	Fuel       int64         `koanf:"fuel"`
	Memory     byteSize      `koanf:"memory"`
	Output     byteSize      `koanf:"output"`
	Timeout    time.Duration `koanf:"timeout"`
	Background time.Duration `koanf:"background"`
}

// backgroundConfig is about background runs; what is left out is the built-in
// default.
type backgroundConfig struct {
	PerSession  int            `koanf:"per_session"`  // active runs of a session
	PerHost     int            `koanf:"per_host"`     // of all sessions, parked calls counted
	Parked      int            `koanf:"parked"`       // parked calls of a session
	Schedules   int            `koanf:"schedules"`    // enabled ones of a session
	Park        string         `koanf:"park"`         // hinted, all or never: which calls go on in the background
	ParkAfter   *time.Duration `koanf:"park_after"`   // 0 or null is never
	Retention   time.Duration  `koanf:"retention"`    // of ended runs
	RetainRuns  int            `koanf:"retain_runs"`  // ended runs of a session
	NoticeTTL   time.Duration  `koanf:"notice_ttl"`   // of notices nobody took
	OutputCap   byteSize       `koanf:"output_cap"`   // kept of a run
	LogQuota    byteSize       `koanf:"log_quota"`    // output of all runs on disk
	RecordQuota byteSize       `koanf:"record_quota"` // records of all runs and schedules
	EndSession  string         `koanf:"end_session"`  // parked or all: what the end of a session stops
	MinInterval time.Duration  `koanf:"min_interval"` // between two firings of a schedule
	Misfire     time.Duration  `koanf:"misfire"`      // how late a missed firing is caught up
}

// hostConfig is what all calls share; 0 is the built-in default.
type hostConfig struct {
	Memory  byteSize      `koanf:"memory"`      // of all calls and warm instances together
	Cache   byteSize      `koanf:"cache"`       // compiled code on disk
	Calls   int           `koanf:"calls"`       // of one plugin at a time
	Total   int           `koanf:"total_calls"` // of all plugins at a time, background runs not counted
	Warm    int           `koanf:"warm"`        // instances of one plugin that wait for a call
	WarmFor time.Duration `koanf:"warm_for"`    // how long they wait

	CompileMemory byteSize      `koanf:"compile_memory"` // of the process that compiles a plugin
	CompileTime   time.Duration `koanf:"compile_time"`   // processor time of that
}

func (c hostConfig) config() host.Config {
	return host.Config{
		Memory: int64(c.Memory), CacheSize: int64(c.Cache), Calls: c.Calls, TotalCalls: c.Total, Warm: c.Warm, WarmFor: c.WarmFor,
		Compiler: host.ThisProgram(), CompileMemory: int64(c.CompileMemory), CompileTime: c.CompileTime,
	}
}

type grantConfig struct {
	Clock  bool              `koanf:"clock"`
	Random bool              `koanf:"random"`
	Ask    bool              `koanf:"ask"` // put questions to the user
	Files  []mountConfig     `koanf:"files"`
	Env    map[string]string `koanf:"env"`
	Config map[string]string `koanf:"config"`
}

type mountConfig struct {
	Dir  string `koanf:"dir"`  // of the host
	Path string `koanf:"path"` // in the sandbox
	Mode string `koanf:"mode"` // read or write
}

// byteSize is a number of bytes, written as a number or as 64MiB.
type byteSize int64

var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// UnmarshalText reads a size.
func (s *byteSize) UnmarshalText(text []byte) error {
	number, factor := strings.TrimSpace(string(text)), int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(n), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n < 0 || n*float64(factor) > 1<<60 {
		return fmt.Errorf("expected a size such as 64MiB or 1048576, found %q", text)
	}
	*s = byteSize(n * float64(factor))
	return nil
}

// Set, String and Type make it a flag.
func (s *byteSize) Set(text string) error { return s.UnmarshalText([]byte(text)) }
func (s *byteSize) String() string        { return strconv.FormatInt(int64(*s), 10) }
func (s *byteSize) Type() string          { return "size" }

// runs is the part of the configuration that the service has for it.
func (b backgroundConfig) runs() server.RunsConfig {
	c := server.RunsConfig{
		PerSession: b.PerSession, PerHost: b.PerHost, Parked: b.Parked, Schedules: b.Schedules, Park: server.Park(b.Park),
		Retention: b.Retention, RetainRuns: b.RetainRuns, NoticeTTL: b.NoticeTTL,
		OutputCap: int(b.OutputCap), LogQuota: int64(b.LogQuota), RecordQuota: int64(b.RecordQuota), EndSession: background.SessionEnd(b.EndSession),
		MinInterval: b.MinInterval, Misfire: b.Misfire,
	}
	switch {
	case b.ParkAfter == nil: // the built-in default
	case *b.ParkAfter == 0:
		c.ParkAfter = -1 // never
	default:
		c.ParkAfter = *b.ParkAfter
	}
	return c
}
