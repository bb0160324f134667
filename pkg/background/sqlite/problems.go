package sqlite

import (
	"log/slog"
	"sync"
)

// The kinds of damage.
const (
	kindDatabase = "database"
	kindRun      = "run"
	kindSchedule = "schedule"
	kindLog      = "log"
)

// Stats describe the damage and loss that an engine has found.
type Stats struct {
	Failed   string `json:"failed,omitempty"` // reason why nothing can be stored until the server is restarted; "": none
	Problems int    `json:"problems"`         // number of damaged records, logs and files found since the start
}

// Stats returns the current statistics.
func (e *Engine) Stats() Stats {
	s := Stats{Problems: e.problems.count()}
	if err := e.Err(); err != nil {
		s.Failed = err.Error()
	}
	return s
}

// problems logs and counts damage, once for each damaged thing.
type problems struct {
	log *slog.Logger

	mu  sync.Mutex
	met map[[2]string]bool // by kind and id
}

func (p *problems) report(kind, id string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if !p.met[[2]string{kind, id}] {
		p.met[[2]string{kind, id}] = true
		p.log.Error("stored data damaged or lost", "kind", kind, "id", id, "error", err)
	}
}

func (p *problems) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.met)
}
