package background_test

import (
	"testing"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/enginetest"
)

func TestMemoryEngine(t *testing.T) {
	enginetest.Run(t, func(*testing.T) background.Engine { return background.NewMemoryEngine() })
}
