package mcptool

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// exitGracePeriod is how long a program may take to exit after its stdin was closed. It gets the same time again
// after SIGTERM. Then its process group is killed.
const exitGracePeriod = 2 * time.Second

// writeTimeout bounds a write to a program that does not read its stdin.
const writeTimeout = 10 * time.Second

// process is a running program that speaks MCP on stdin and stdout.
type process struct {
	command *exec.Cmd
	stdin   *os.File
	stdout  *os.File
	stderr  *stderrLogger
	exited  chan struct{} // closed when the program and its group are gone
}

// startProcess starts the program.
func (s *Server) startProcess() (*process, error) {
	env, err := s.config.environment()
	if err != nil {
		return nil, err
	}
	p := &process{stderr: &stderrLogger{log: s.log}, exited: make(chan struct{})}
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("no pipe to the program: %w", err)
	}
	defer func() { _ = theirIn.Close() }() // the program has its own copy
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("no pipe from the program: %w", err), ourIn.Close())
	}
	defer func() { _ = theirOut.Close() }() // the program has its own copy
	p.stdin, p.stdout = ourIn, ourOut

	p.command = exec.Command(s.config.Command[0], s.config.Command[1:]...) //nolint:gosec // the author of the agent asks for it
	p.command.Env, p.command.Dir = env, s.config.Dir
	p.command.Stdin, p.command.Stdout, p.command.Stderr = theirIn, theirOut, p.stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its child processes end with it
	p.command.WaitDelay = exitGracePeriod
	if err := p.command.Start(); err != nil {
		_, _ = ourIn.Close(), ourOut.Close() // the other end is closed
		return nil, newConfigError("command: %s cannot be run: %s", s.config.Command[0], err)
	}
	go func() {
		defer close(p.exited)
		_ = p.command.Wait() // the exit status does not matter; the end of stdout shows that it exited
		p.signal(syscall.SIGKILL)
		p.stderr.flush()
	}()
	return p, nil
}

// signal sends a signal to the whole process group.
func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.command.Process.Pid, s) } // it may be gone

// stop ends the program and waits until it has exited. It may be called more than once.
func (p *process) stop() {
	_ = p.stdin.Close() // this asks the program to exit
	for _, next := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-p.exited:
		case <-time.After(exitGracePeriod):
			p.signal(next)
		}
	}
	<-p.exited
	_ = p.stdout.Close() // it may be closed already
}

// transport returns the transport to the server, a function that closes it, and a function that returns the last
// lines of stderr.
func (s *Server) transport() (t mcp.Transport, end func(), said func() string, err error) {
	if s.config.URL != "" {
		return s.webTransport()
	}
	p, err := s.startProcess()
	if err != nil {
		return nil, nil, nil, err
	}
	return &mcp.IOTransport{
		Reader:        newMessageReader(p.stdout, s.log),
		Writer:        stdinWriter{p.stdin},
		MaxLineLength: maxMessage,
	}, p.stop, p.stderr.joinedTail, nil
}

// stdinWriter writes to the stdin of a program. A write fails if the program does not read it in time.
type stdinWriter struct{ *os.File }

func (s stdinWriter) Write(b []byte) (int, error) {
	if err := s.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return s.File.Write(b)
}
