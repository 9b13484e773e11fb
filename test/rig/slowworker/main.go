// Command slowworker runs a worker of the slow agent.
package main

import (
	"os"

	"github.com/troupe-dev/troupe/pkg/worker"
	"github.com/troupe-dev/troupe/test/rig/slow"
)

func main() { os.Exit(worker.Main(slow.New(os.Getenv("SLOW_GATE"), os.Getenv("TROUPE_INSTANCE_ID")))) }
