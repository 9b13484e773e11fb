package sessionlog_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/troupe-dev/troupe/internal/sessionlog"
)

func ExampleOpen() {
	folder, err := os.MkdirTemp("", "sessionlog")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	log, err := sessionlog.Open(sessionlog.Config{Agent: "greeter", Folder: folder, Lookup: os.LookupEnv})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = log.Close() }()
	if err := log.WriteTurn(sessionlog.Turn{Session: "s1", Number: 1, Input: "Say hello!", Result: "Hello."}); err != nil {
		fmt.Println(err)
	}
	logs, _ := filepath.Glob(filepath.Join(folder, "evals", "greeter", "*.yaml"))
	fmt.Println(filepath.Base(logs[0]))
	// Output: say-hello.yaml
}
