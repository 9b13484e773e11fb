// Command talker runs an agent with its own session. It sends each input line to the session and prints the
// answer. "/pause" pauses the session, and "/continue" continues it without input from the user.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/test/scenario/talker/talk"
)

func main() {
	if err := run(os.Getenv("TALKER_MEMORY"), os.Getenv("TALKER_SESSION")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(store, id string) error {
	ctx := context.Background()
	conn, err := rpc.Dial(store, telemetry.Discard())
	if err != nil {
		return err
	}
	defer conn.Close()
	// This tool never returns, because the test kills the process while the tool runs.
	a, err := talk.New(func(context.Context) error {
		fmt.Fprintln(os.Stdout, "working")
		<-make(chan struct{})
		return nil
	})
	if err != nil {
		return err
	}
	s, err := local.Open(ctx, a, local.Config{Store: memoryrpc.New(conn), ID: id, Lease: 2 * time.Second})
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		in := local.Input{Text: lines.Text()}
		switch in.Text {
		case "/pause":
			if err := s.Pause(ctx); err != nil {
				return err
			}
			fmt.Fprintln(os.Stdout, "paused")
			continue
		case "/continue":
			in = local.Input{Continue: true}
		}
		done, err := s.Execute(ctx, in, nil)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stdout, "%d: %s\n", done.Turn, done.Result.Text)
	}
	return lines.Err()
}
