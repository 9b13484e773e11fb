package inmem_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/inmem"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRegistry_Suite(t *testing.T) {
	registrytest.Run(t, func(*testing.T) registry.Registry { return inmem.New() })
}
