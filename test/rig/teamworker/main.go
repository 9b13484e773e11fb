// Command teamworker runs a worker of the agent in package team.
package main

import (
	"fmt"
	"os"

	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/worker"
	"github.com/troupe-dev/troupe/test/rig/team"
)

func main() {
	conn, err := rpc.Dial(os.Getenv("TEAM_ORCHESTRATOR"), telemetry.Discard())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(worker.Main(team.New(client.New(conn), os.Getenv("TEAM_GATE"))))
}
