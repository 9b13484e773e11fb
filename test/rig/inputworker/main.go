// Command inputworker runs a worker of the agent in package inputagent.
package main

import (
	"os"

	"github.com/troupe-dev/troupe/pkg/worker"
	"github.com/troupe-dev/troupe/test/rig/inputagent"
)

func main() {
	os.Exit(worker.Main(inputagent.New(os.Getenv("CLERK_NAME"), os.Getenv("CLERK_GATE"), os.Getenv("TROUPE_INSTANCE_ID"))))
}
