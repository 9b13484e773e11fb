package inmem_test

import (
	"testing"

	"github.com/troupe-dev/troupe/internal/registry/inmem"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
)

func TestStores_Suite(t *testing.T) { registrytest.RunStoreRecords(t, inmem.NewStoreRecords()) }
