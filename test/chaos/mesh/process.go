package mesh

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// Process is a running program.
type Process struct {
	ID string // of the instance, or the name of the service

	cmd   *exec.Cmd
	log   *os.File
	ended chan struct{}
}

// launch starts a program; what it says goes into the file.
func launch(id, program, logfile string, env []string) (*Process, error) {
	log, err := os.OpenFile(logfile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &Process{ID: id, cmd: exec.Command(program), log: log, ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		_ = log.Close()
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended is in its state
		_ = log.Close()
	}()
	return p, nil
}

// Kill ends the process as kill -9 does, and returns when it is dead. That it had died
// before, of something else, is an error.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("%s was dead already: %w", p.ID, err)
	}
	<-p.ended
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("%s did not die of the kill: %s", p.ID, p.cmd.ProcessState)
	}
	return nil
}

// Stop ends the process as SIGTERM does, and returns when it has ended; with an error when
// that was not in order.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.ended
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s did not stop in order: %s", p.ID, p.cmd.ProcessState)
	}
	return nil
}

// Freeze stops the process as SIGSTOP does, until thaw, which may be called again. A
// process that was killed meanwhile is not thawed.
func (p *Process) Freeze() (thaw func(), err error) {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }), nil
}

// Gone reports whether the process has ended.
func (p *Process) Gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}
