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
	ID string // id of the instance, or name of the service

	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
}

// launch starts a program and writes its output to the file.
func launch(id, program, logfile string, env []string) (*Process, error) {
	log, err := os.OpenFile(logfile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &Process{ID: id, cmd: exec.Command(program), log: log, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		_ = log.Close()
		return nil, err
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the process state says how it ended
		_ = log.Close()
	}()
	return p, nil
}

// Kill kills the process with SIGKILL and waits until it is dead. It fails if the process was already dead.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("%s was dead already: %w", p.ID, err)
	}
	<-p.done
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("%s did not die of the kill: %s", p.ID, p.cmd.ProcessState)
	}
	return nil
}

// Stop sends SIGTERM and waits until the process has ended. It fails if the exit code is not 0.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.done
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s did not stop in order: %s", p.ID, p.cmd.ProcessState)
	}
	return nil
}

// Freeze sends SIGSTOP and returns thaw, which lets the process continue. thaw may be called again, and does
// nothing if the process was killed.
func (p *Process) Freeze() (thaw func(), err error) {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }), nil
}

// HasEnded reports whether the process has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
