package document

import (
	"fmt"
	"math"

	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlNesting refuses deep nesting before anything is decoded: a dotted key has a
// level for each two bytes. Syntax errors are left to the decoder.
func tomlNesting(data []byte) error {
	var p unstable.Parser
	p.Reset(data)

	for table := 0; p.NextExpression(); {
		e := p.Expression()
		depth := 0
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = keyParts(e)
			depth = table
		case unstable.KeyValue:
			depth = table + tomlDepth(e)
		}

		if depth > MaxNesting {
			key := e.Key()
			key.Next()
			return errNesting(p.Shape(key.Node().Raw).Start.Line)
		}
	}
	return nil
}

// tomlDepth is how many levels a node adds.
func tomlDepth(n *unstable.Node) int {
	switch n.Kind {
	case unstable.KeyValue:
		return keyParts(n) + tomlDepth(n.Value())
	case unstable.Array, unstable.InlineTable:
		deepest := 0
		for inner := n.Children(); inner.Next(); {
			deepest = max(deepest, tomlDepth(inner.Node()))
		}
		if n.Kind == unstable.Array {
			deepest++
		}
		return deepest
	}
	return 0
}

func keyParts(n *unstable.Node) (parts int) {
	for key := n.Key(); key.Next(); {
		parts++
	}
	return parts
}

// budget bounds what a document expands to: a YAML alias of a few bytes repeats a
// whole value.
type budget struct{ bytes int }

func (b *budget) value(v any, depth int) error {
	if depth > MaxNesting {
		return fmt.Errorf("expected at most %d levels of nesting", MaxNesting)
	}

	b.bytes--
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			b.bytes -= len(key)
			if err := b.value(item, depth+1); err != nil {
				return err
			}
		}
	case map[any]any:
		for key := range v {
			if _, ok := key.(string); !ok {
				return fmt.Errorf("expected names as keys, found the key %v: put it in quotes", key)
			}
		}
	case []any:
		for _, item := range v {
			if err := b.value(item, depth+1); err != nil {
				return err
			}
		}
	case string:
		b.bytes -= len(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("expected numbers, found %v", v)
		}
	}

	if b.bytes < 0 {
		return fmt.Errorf("it expands to more than %d bytes, the limit", MaxJSON)
	}
	return nil
}
