// Command clerkworker is a worker of a clerk.
package main

import (
	"os"

	"github.com/troupe-dev/troupe/pkg/worker"
	"github.com/troupe-dev/troupe/test/rig/clerk"
)

func main() {
	os.Exit(worker.Main(clerk.New(os.Getenv("CLERK_NAME"), os.Getenv("CLERK_GATE"), os.Getenv("TROUPE_INSTANCE_ID"))))
}
