//go:build docs && linux

package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// session returns the command that runs the script of a page. Where that is permitted it has a network of its own,
// so that pages use the ports that they show at the same time, and its programs end with it. The copy of the
// repository then is where the repository is, so that the build cache holds what the page builds.
func (w *sharedEnvironment) session(ctx context.Context, repository, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", script)
	if w.isolated {
		cmd = isolatedCommand(ctx, "sandbox", w.root, repository, script)
	} else {
		cmd.Dir = repository
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	}
	cmd.Env = append(cmd.Env, w.env...)
	return cmd
}

// isolatedCommand returns a command that runs this test again, in namespaces of its own.
func isolatedCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = args
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

func canIsolate() bool {
	return isolatedCommand(context.Background(), "sandbox").Run() == nil
}

// sandbox is the first process in the namespaces. It makes them usable and becomes bash.
func sandbox(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	if len(args) == 0 {
		return nil
	}
	at, repository, script := args[0], args[1], args[2]
	if err := unix.Mount(repository, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", at, err)
	}
	if err := os.Chdir(at); err != nil {
		return err
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		return err
	}
	return unix.Exec(bash, []string{"bash", script}, os.Environ())
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
