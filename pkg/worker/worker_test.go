package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/worker"
)

// A program that calls Run sets the addresses itself. It gets an error at once if one is missing or wrong.
func TestRun_AnInvalidConfigIsAnError(t *testing.T) {
	a, err := agent.New(agent.Config{Name: "a", Model: scripted.New()})
	require.NoError(t, err)
	cfg := worker.Config{GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Memory: "no address"}
	err = worker.Run(t.Context(), cfg, a, func() { t.Error("it is ready") })
	require.Error(t, err)
}
