package process

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/troupe-dev/troupe/internal/telemetry"
)

// These are the exit codes of every program of the mesh.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
)

// Main is the main function of a service. It fills cfg from flags and environment, serves as Serve does
// until SIGINT, SIGTERM or SIGHUP, and returns the exit code. A second SIGINT or SIGTERM ends the process
// at once.
//
// The struct tags of cfg are kong's. Its Validate method is called if it has one. tel points into cfg.
func Main(name, description string, cfg any, tel *telemetry.Config, run func(context.Context, *telemetry.Telemetry) error) int {
	if code, ok := parseFlags(name, description, cfg, os.Args[1:], os.Stdout, os.Stderr); !ok {
		return code
	}
	ctx, stop := Signals(context.Background())
	defer stop()
	return Serve(ctx, name, *tel, os.Stderr, run)
}

// Serve runs a service with the telemetry that tel describes until ctx ends, and returns the exit code. It writes
// errors to stderr. It disables core dumps, because a core dump would hold the credentials of turns.
func Serve(ctx context.Context, name string, tel telemetry.Config, stderr io.Writer, run func(context.Context, *telemetry.Telemetry) error) int {
	failed := func(err error, code int) int {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return code
	}
	if err := disableCoreDumps(); err != nil {
		return failed(err, ExitError)
	}
	t, err := telemetry.New(ctx, name, tel)
	if err != nil {
		return failed(err, ExitUsage)
	}
	defer t.Close()
	if err := run(ctx, t); err != nil {
		return failed(err, ExitError)
	}
	return ExitOK
}

// Signals returns a context that ends with the first SIGINT, SIGTERM or SIGHUP. After that, SIGINT and SIGTERM
// have their default effect again, so that a second one ends the process at once. SIGHUP is then ignored, because
// a closing terminal sends it more than once. A process that was started to ignore SIGHUP, as nohup does, always
// ignores it.
func Signals(ctx context.Context) (context.Context, context.CancelFunc) {
	ending := []os.Signal{os.Interrupt, syscall.SIGTERM}
	hangups := make(chan os.Signal, 1) // never read; catching the signal keeps the process alive
	if !signal.Ignored(syscall.SIGHUP) {
		ending = append(ending, syscall.SIGHUP)
		signal.Notify(hangups, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(ctx, ending...)
	context.AfterFunc(ctx, stop)
	return ctx, func() { stop(); signal.Stop(hangups) }
}

// Version returns the version of the program's module, as recorded by the Go toolchain.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// parseFlags fills cfg from the flags and the environment. ok reports whether the program should run; if not, code
// is its exit code.
func parseFlags(name, description string, cfg any, args []string, stdout, stderr io.Writer) (code int, ok bool) {
	helped := false
	parser, err := kong.New(cfg, kong.Name(name), kong.Description(description),
		kong.Embed(&struct {
			Version kong.VersionFlag `help:"Print the version and exit."`
		}{}), kong.Vars{"version": Version()},
		kong.Writers(stdout, stderr), kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return ExitUsage, false
	}
	_, err = parser.Parse(args)
	if helped {
		return ExitOK, false
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\nSee %s --help.\n", name, err, name)
		return ExitUsage, false
	}
	return ExitOK, true
}
