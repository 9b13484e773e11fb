package serve

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/process"
)

// Each service rejects unknown flags and invalid values, as its own program does.
func TestServices_ValidateTheirFlags(t *testing.T) {
	for says, args := range map[string][]string{
		"--timeout: 1h0m0s is not between 1s and 10m0s": {"orchestrator", "--timeout", "1h"},
		"--durability must be one of":                   {"memory", "--durability", "D7"},
		"--drain: -1s is below zero":                    {"worker", "--drain=-1s"},
		"unknown flag --timeout":                        {"memory", "--timeout", "1s"},
	} {
		var out bytes.Buffer
		require.Equal(t, process.ExitUsage, runCommand(t.Context(), append([]string{"serve"}, args...), console.Terminal{Out: &out, Err: &out}), says)
		require.Contains(t, out.String(), says)
	}
}

// The error of a service that cannot start begins with the name of the service, as in its own program.
func TestServices_ErrorNamesTheService(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out bytes.Buffer
	args := []string{"serve", "worker", "--agents", t.TempDir() + "/absent", "--log-level", "error"}
	require.Equal(t, process.ExitError, runCommand(ctx, args, console.Terminal{Out: &out, Err: &out}))
	require.Contains(t, out.String(), "worker: --agents: ")
}
