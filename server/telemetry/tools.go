package telemetry

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxNames is the number of tools, and of plugins, that have series of their own: the first
// in use. All others count for [Other].
const maxNames = 256

// names is the set of names that are label values.
type names struct {
	mu    sync.RWMutex
	known map[string]bool
}

// bound returns the label value for a name. Known means that the name exists.
func (n *names) bound(name string, known bool) string {
	if !known {
		return Unknown
	}
	n.mu.RLock()
	listed := n.known[name]
	n.mu.RUnlock()
	if listed {
		return name
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[string]bool{}
	}
	if !n.known[name] && len(n.known) >= maxNames {
		return Other
	}
	n.known[name] = true
	return name
}

// labels are the labels of measurements for each call. Each has a bounded set of values.
type labels struct{ tool, caller, method, failure string }

func (l labels) set() attribute.Set {
	var all []attribute.KeyValue
	for _, label := range []attribute.KeyValue{ToolName.String(l.tool), Caller.String(l.caller), MCPMethod.String(l.method), ErrorType.String(l.failure)} {
		if label.Value.AsString() != "" {
			all = append(all, label)
		}
	}
	return attribute.NewSet(all...)
}

// options caches measurement options by labels, so that recording does not allocate.
type options struct {
	mu    sync.RWMutex
	known map[labels]option
}

type option struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

func (o *options) of(l labels) option {
	o.mu.RLock()
	found, ok := o.known[l]
	o.mu.RUnlock()
	if ok {
		return found
	}

	with := metric.WithAttributeSet(l.set())
	found = option{[]metric.RecordOption{with}, []metric.AddOption{with}}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		o.known = map[labels]option{}
	}
	o.known[l] = found
	return found
}
