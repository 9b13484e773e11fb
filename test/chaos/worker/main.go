// Command worker is the worker of the chaos suite. It serves the scripted agent, whose model and tools post every
// call to the ledger.
package main

import (
	"os"

	"github.com/troupe-dev/troupe/pkg/worker"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/scriptedagent"
)

func main() {
	client := ledger.Client{URL: os.Getenv("CHAOS_LEDGER"), Worker: os.Getenv("TROUPE_INSTANCE_ID")}
	os.Exit(worker.Main(scriptedagent.New(client)))
}
