package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/encoding/protojson"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/loopback"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"troupe": main})
}

// $GRPC and $HTTP are two addresses at which nothing listens.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each command would take a second to end
			for _, name := range []string{"GRPC", "HTTP"} {
				env.Setenv(name, loopback.Address(t))
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": requireExitCode, "waitready": awaitReady, "sigterm": sendSIGTERM, "occupy": occupyPort,
			"capture": captureOutput, "events": requireEvents, "nothingleft": requireNoProcesses,
		},
	})
}

// waitTimeout bounds every wait of a script. A passing test never waits nearly as long.
const waitTimeout = time.Minute

// requireExitCode implements the script command `exits CODE ARG…`. It runs troupe and requires the exit code.
func requireExitCode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec("troupe", args[1:]...)
	if left, ok := errors.AsType[*exec.ExitError](err); ok {
		got = left.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// awaitReady implements the script command `waitready ADDR`. It waits until the readiness probe at the address
// succeeds.
func awaitReady(ts *testscript.TestScript, _ bool, args []string) {
	probe := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := probe.Get("http://" + args[0] + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			ts.Fatalf("no server is ready at %s: %v", args[0], err)
		}
	}
}

// sendSIGTERM implements the script command `sigterm`. It sends SIGTERM to every background command, as a cluster
// does to stop a process.
func sendSIGTERM(ts *testscript.TestScript, _ bool, _ []string) {
	for _, cmd := range ts.BackgroundCmds() {
		ts.Check(cmd.Process.Signal(syscall.SIGTERM))
	}
}

// occupyPort implements the script command `occupy NAME`. It listens on a port until the script ends, and sets
// NAME to its address.
func occupyPort(ts *testscript.TestScript, _ bool, args []string) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = lis.Close() })
	ts.Setenv(args[0], lis.Addr().String())
}

// captureOutput implements the script command `capture NAME PATTERN`. It sets NAME to the first group that the
// pattern matches in the last output.
func captureOutput(ts *testscript.TestScript, _ bool, args []string) {
	found := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("nothing matches %s", args[1])
	}
	ts.Setenv(args[0], found[1])
}

// requireEvents implements the script command `events FIRST`. It checks that each line of the last output is an
// event in protobuf JSON. The sequences must continue from FIRST without a gap, and the last event must be the
// turn result.
func requireEvents(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.ParseUint(args[0], 10, 64)
	ts.Check(err)
	var e *troupev1.Event
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		e = &troupev1.Event{}
		if err := protojson.Unmarshal([]byte(line), e); err != nil {
			ts.Fatalf("%v in the line %s", err, line)
		}
		if e.GetTextDelta() != nil {
			continue
		}
		if e.GetSequence() != want {
			ts.Fatalf("sequence %d, want %d", e.GetSequence(), want)
		}
		want++
	}
	if e.GetTurnResult() == nil {
		ts.Fatalf("the last event is %v", e)
	}
}

// requireNoProcesses implements the script command `nothingleft`. It checks that no process of the script is still
// running.
func requireNoProcesses(ts *testscript.TestScript, _ bool, _ []string) {
	work := ts.Getenv("WORK")
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	ts.Check(err)
	for _, file := range commands {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(line), work) { // an error means that the process has just ended
			ts.Fatalf("still there: %s", fmt.Sprintf("%q", line))
		}
	}
}
