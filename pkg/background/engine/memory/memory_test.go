package memory_test

import (
	"testing"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/enginetest"
	"github.com/toolhost/toolhost/pkg/background/engine/memory"
)

func TestEngine(t *testing.T) {
	enginetest.Run(t, func(*testing.T) engine.Engine { return memory.New() })
}
