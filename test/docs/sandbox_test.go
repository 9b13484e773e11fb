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

// scriptCommand returns the command that runs the script of a page. If possible, the script gets its own network,
// so that several pages can use the same ports, and its programs end with it. The copy of the repository is then
// mounted at the repository's path, so that all pages share the build cache.
func (e *sharedEnvironment) scriptCommand(ctx context.Context, repository, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", script)
	if e.isolated {
		cmd = isolatedCommand(ctx, "sandbox", e.root, repository, script)
	} else {
		cmd.Dir = repository
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	}
	cmd.Env = append(cmd.Env, e.env...)
	return cmd
}

// isolatedCommand returns a command that runs this test binary again in new namespaces.
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

// runSandbox runs as the first process in the new namespaces. It sets them up and then executes bash.
func runSandbox(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := bringUpLoopback(); err != nil {
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

func bringUpLoopback() error {
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
