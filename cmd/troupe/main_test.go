package main

import (
	"testing"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/clitest"
)

func newMesh(t *testing.T) *clitest.Mesh { t.Helper(); return clitest.NewMesh(t, run) }
