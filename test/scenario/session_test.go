package scenario

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	service "github.com/troupe-dev/troupe/services/memory/app"
	"github.com/troupe-dev/troupe/test/gobuild"
	"github.com/troupe-dev/troupe/test/redistest"
	"github.com/troupe-dev/troupe/test/scenario/talker/talk"
)

// talkerProcess is a running talker program.
type talkerProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func startTalker(t *testing.T, program, store, id string) *talkerProcess {
	t.Helper()
	p := &talkerProcess{t: t, cmd: exec.CommandContext(t.Context(), program)}
	p.cmd.Env = append(os.Environ(), "TALKER_MEMORY="+store, "TALKER_SESSION="+id)
	p.cmd.Stderr = t.Output()
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.lines = bufio.NewScanner(out)
	require.NoError(t, p.cmd.Start())
	return p
}

// sendLine sends a line to the process and returns the process's answer.
func (p *talkerProcess) sendLine(line string) string {
	p.t.Helper()
	_, err := io.WriteString(p.in, line+"\n")
	require.NoError(p.t, err)
	require.True(p.t, p.lines.Scan(), "the process answers")
	return p.lines.Text()
}

// A session continues in a second process, which is killed in the middle of a turn, and then in a third. The
// session keeps its whole history and the right number of turns.
// Req: LP-9, LP-10, LP-10a
func TestSession_ContinuesInAnotherProcess(t *testing.T) {
	programs, err := gobuild.Build("", "./talker")
	require.NoError(t, err)
	program := filepath.Join(programs, "talker")
	address, store := startMemoryService(t)
	const id = "talk"

	first := startTalker(t, program, address, id)
	require.Equal(t, "1: I know 1 messages.", first.sendLine("hello"))
	require.Equal(t, "2: I know 3 messages.", first.sendLine("hello again"))
	require.Equal(t, "paused", first.sendLine("/pause"))
	require.NoError(t, first.in.Close())
	require.NoError(t, first.cmd.Wait())

	second := startTalker(t, program, address, id)
	require.Equal(t, "3: I know 5 messages.", second.sendLine("and you?"))
	require.Equal(t, "4: I know 6 messages.", second.sendLine("/continue"))
	require.Equal(t, "working", second.sendLine("work"))
	require.NoError(t, second.cmd.Process.Kill())
	require.Error(t, second.cmd.Wait())

	ran := 0
	a, err := talk.New(func(context.Context) error { ran++; return nil })
	require.NoError(t, err)
	s, err := local.Open(t.Context(), a, local.Config{Store: store, ID: id})
	require.NoError(t, err)
	done, waited := continueSession(t, s)
	require.Positive(t, waited, "the lease of the process that was killed still ran")
	require.Equal(t, 5, done.Turn)
	require.Equal(t, "I know 10 messages.", done.Result.Text)
	require.Zero(t, ran, "the tool's outcome is unknown, so it does not run again")
	require.Equal(t, session.Ready, s.State())
	require.Equal(t, 5, s.Info().Turns)

	messages, err := s.Messages(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, conversation.CheckRounds(messages))
	var users, answers int
	var last int64
	for _, m := range messages {
		if m.Sequence > 0 { // messages of tool rounds have none
			last++
			require.Equal(t, last, m.Sequence)
		}
		switch m.Role {
		case conversation.RoleUser:
			users++
		case conversation.RoleTool:
			require.Contains(t, m.Text, "UNKNOWN_OUTCOME")
		default:
			answers++
		}
	}
	require.Equal(t, []int{4, 6, 11}, []int{users, answers, len(messages)})
	require.NoError(t, s.Close(t.Context()))
}

// continueSession continues a session after the lease of its lost turn has expired. It returns the result of the
// turn, and the time that the session told it to wait.
func continueSession(t *testing.T, s *local.Session) (done event.TurnResult, waited time.Duration) {
	t.Helper()
	for {
		for e, err := range s.Turn(t.Context(), local.Input{Continue: true}) {
			require.NoError(t, err)
			if p, last := e.Payload.(event.TurnResult); last {
				done = p
			}
		}
		if done.ErrorType != "session_busy" {
			return done, waited
		}
		left, err := time.ParseDuration(done.Result.Failure.Facts["lease_left"])
		require.NoError(t, err)
		require.LessOrEqual(t, left, 2*time.Second)
		waited += left
		<-time.After(left)
	}
}

// startMemoryService starts a memory service on a real Redis. It returns the service's address and a store that
// uses it.
func startMemoryService(t *testing.T) (address string, store memory.Store) {
	t.Helper()
	app, err := service.New(telemetry.Discard(), service.Config{
		GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Redis: "redis://" + redistest.Start(t), Grace: 5 * time.Second,
	})
	require.NoError(t, err)
	conn, err := rpc.Dial(app.GRPCAddr(), telemetry.Discard())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, func() {}) }()
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		stop()
		require.NoError(t, <-done)
	})
	return app.GRPCAddr(), memoryrpc.New(conn)
}
