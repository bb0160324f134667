package background

import (
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// Names that moved to packages engine and output.
type (
	Run          = engine.Run
	Status       = engine.Status
	Origin       = engine.Origin
	ErrorKind    = engine.ErrorKind
	Part         = engine.Part
	RunError     = engine.RunError
	Beat         = engine.Beat
	End          = engine.End
	Progress     = engine.Progress
	Cancellation = engine.Cancellation
	NoticeState  = engine.NoticeState
	Query        = engine.Query
	Retention    = engine.Retention
	Event        = engine.Event
	EventKind    = engine.EventKind
	Schedule     = engine.Schedule
	Overlap      = engine.Overlap
	Chunk        = engine.Chunk
	Artifact     = engine.Artifact
	Envelope     = engine.Envelope
	Engine       = engine.Engine
	Lease        = engine.Lease
	Quota        = engine.Quota
	LimitError   = engine.LimitError
	MemoryEngine = memory.Engine
	Sink         = output.Sink
	Output       = output.Output
	OutputReport = output.Page
)

// Values that moved.
const (
	StatusQueued    = engine.StatusQueued
	StatusRunning   = engine.StatusRunning
	StatusSucceeded = engine.StatusSucceeded
	StatusFailed    = engine.StatusFailed
	StatusCanceled  = engine.StatusCanceled

	OriginSpawned   = engine.OriginSpawned
	OriginParked    = engine.OriginParked
	OriginScheduled = engine.OriginScheduled

	KindToolError   = engine.KindToolError
	KindInternal    = engine.KindInternal
	KindTimeout     = engine.KindTimeout
	KindRejected    = engine.KindRejected
	KindOrphaned    = engine.KindOrphaned
	KindInterrupted = engine.KindInterrupted

	PartArgs    = engine.PartArgs
	PartResult  = engine.PartResult
	PartContent = engine.PartContent

	NoticeNone    = engine.NoticeNone
	NoticePending = engine.NoticePending
	NoticeSeen    = engine.NoticeSeen

	EventQueued    = engine.EventQueued
	EventStarted   = engine.EventStarted
	EventBeat      = engine.EventBeat
	EventStopping  = engine.EventStopping
	EventEnded     = engine.EventEnded
	EventSeen      = engine.EventSeen
	EventPurged    = engine.EventPurged
	EventScheduled = engine.EventScheduled
	EventMissed    = engine.EventMissed

	OverlapSkip   = engine.OverlapSkip
	OverlapQueue  = engine.OverlapQueue
	OverlapCancel = engine.OverlapCancel

	DisabledStopped  = engine.DisabledStopped
	DisabledFired    = engine.DisabledFired
	DisabledMissed   = engine.DisabledMissed
	DisabledRejected = engine.DisabledRejected
	DisabledOver     = engine.DisabledOver
	DisabledZone     = engine.DisabledZone

	OutputLog      = engine.OutputLog
	ResultJSON     = engine.ResultJSON
	RecordOverhead = engine.RecordOverhead
	LeaseTTL       = engine.DefaultTTL
)

// Errors and functions that moved.
var (
	ErrNotFound      = engine.ErrNotFound
	ErrExists        = engine.ErrExists
	ErrConflict      = engine.ErrConflict
	ErrFenced        = engine.ErrFenced
	ErrNotClaimable  = engine.ErrNotClaimable
	ErrLocked        = engine.ErrLocked
	ErrStorageLost   = engine.ErrStorageLost
	ErrQuota         = engine.ErrQuota
	ErrSessionLimit  = engine.ErrSessionLimit
	ErrOwnerLimit    = engine.ErrOwnerLimit
	ErrParkedLimit   = engine.ErrParkedLimit
	ErrScheduleLimit = engine.ErrScheduleLimit
	ErrRecordLimit   = engine.ErrRecordLimit
	ErrNoRun         = output.ErrNoRun

	NewMemoryEngine = memory.New
	NewSink         = output.NewSink
	Clean           = output.Clean
	PartialRune     = output.PartialRune
)
