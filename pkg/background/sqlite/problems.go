package sqlite

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const quarantineFolder = "quarantine"

// A ProblemKind says what is damaged.
type ProblemKind string

// What can be damaged.
const (
	ProblemDatabase ProblemKind = "database"
	ProblemRun      ProblemKind = "run"
	ProblemSchedule ProblemKind = "schedule"
	ProblemLog      ProblemKind = "log"
	ProblemFolders  ProblemKind = "folders" // of runs whose records are lost
)

// A Problem is a damage the engine met, and worked around.
type Problem struct {
	Kind   ProblemKind
	ID     string // of the run or schedule
	Reason string
	Moved  string // where what is damaged was moved to, below the data directory; "" if nowhere
}

// String says what is damaged, and why, in one line.
func (p Problem) String() string {
	what := string(p.Kind)
	if p.ID != "" {
		what += " " + p.ID
	}
	return what + ": " + p.Reason
}

// Stats count what was damaged or lost.
type Stats struct {
	Failed     string `json:"failed,omitempty"` // why nothing is stored any more, until the server is started again
	Problems   int    `json:"problems"`         // damages and losses met since the start
	Quarantine int64  `json:"quarantine"`       // folders and files in the folder quarantine
	Salvaged   int64  `json:"salvaged"`         // records read from damaged files since the start
}

// Stats returns the counts of this moment.
func (e *Engine) Stats() Stats {
	s := Stats{Quarantine: e.problems.aside.Load(), Salvaged: e.problems.salvaged.Load()}
	if err := e.Err(); err != nil {
		s.Failed = err.Error()
	}

	e.problems.mu.Lock()
	defer e.problems.mu.Unlock()
	s.Problems = e.problems.met
	return s
}

// Problems returns the damages met since Open, oldest first: the last 1,000.
func (e *Engine) Problems() []Problem {
	e.problems.mu.Lock()
	defer e.problems.mu.Unlock()
	return slices.Clone(e.problems.list)
}

// maxProblems is how many problems are remembered. All are logged.
const maxProblems = 1000

// problems remembers what is damaged or lost.
type problems struct {
	dir      string
	log      *slog.Logger
	aside    atomic.Int64 // entries of the quarantine
	salvaged atomic.Int64 // records read from damaged files

	mu   sync.Mutex
	list []Problem
	met  int // those that are not remembered too
}

func newProblems(dir string, log *slog.Logger) *problems {
	p := &problems{dir: dir, log: log}
	entries, _ := os.ReadDir(filepath.Join(dir, quarantineFolder))
	p.aside.Store(int64(len(entries)))
	return p
}

// report remembers a problem. One of a run or a schedule is reported once.
func (p *problems) report(problem Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()

	known := func(q Problem) bool { return q.Kind == problem.Kind && q.ID == problem.ID }
	if problem.ID != "" && slices.ContainsFunc(p.list, known) {
		return
	}
	p.log.Error("stored data damaged or lost", "kind", problem.Kind, "id", problem.ID, "reason", problem.Reason, "moved", problem.Moved)
	if len(p.list) >= maxProblems {
		p.list = p.list[1:]
	}
	p.list = append(p.list, problem)
	p.met++
}

func timestamp() string { return time.Now().UTC().Format("20060102T150405.000000000Z") }
