package sqlite

import (
	"os"
	"slices"
	"time"
)

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
	At     time.Time
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
	s := Stats{Quarantine: e.aside.Load(), Salvaged: e.salvaged.Load()}
	if err := e.Err(); err != nil {
		s.Failed = err.Error()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.Problems = e.met
	return s
}

// maxProblems is how many problems are remembered. All are logged.
const maxProblems = 1000

// Problems returns the damages met since Open, oldest first: the last 1,000.
func (e *Engine) Problems() []Problem {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.problems)
}

func (e *Engine) report(p Problem) {
	p.At = time.Now()
	e.log.Error("stored data damaged or lost", "kind", p.Kind, "id", p.ID, "reason", p.Reason, "moved", p.Moved)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.problems) >= maxProblems {
		e.problems = e.problems[1:]
	}
	e.problems = append(e.problems, p)
	e.met++
}

// suspect looks at an error of the database. If it says that the file is
// damaged, that is reported once, and the next Open looks closely.
func (e *Engine) suspect(err error) {
	if !damagedFile(err) {
		return
	}
	path := e.path(databaseName) + suspectSuffix
	f, create := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if create != nil {
		return // known, or nothing can be done
	}
	_ = f.Close()
	e.report(Problem{Kind: ProblemDatabase, Reason: err.Error()})
}
