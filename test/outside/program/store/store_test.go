package store

import (
	"testing"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest"
)

func TestStore(t *testing.T) {
	memorytest.Run(t, func(*testing.T) memory.Store { return New(memorytest.MaxMessages, memorytest.MaxBytes) })
}
