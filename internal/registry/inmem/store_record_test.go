package inmem_test

import (
	"testing"

	"github.com/troupe-dev/troupe/internal/registry/inmem"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
)

func TestStoreRecords_Suite(t *testing.T) { registrytest.RunStoreRecords(t, inmem.NewStoreRecords()) }
