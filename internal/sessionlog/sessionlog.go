// Package sessionlog records what an agent does, for its developer: a plain log with a line for each event, and
// session logs in YAML with the input, outcome and usage of each turn (CO-53 to CO-58). It takes plain values
// and knows neither agents nor the loop.
//
// The files, all under Config.Folder:
//
//	logs/AGENT.log                 the plain log
//	evals/AGENT/SLUG.yaml          a session log: its turns
//	evals/AGENT/SLUG/run_N.yaml    a run of it: its settings and messages
//
// Each session writes to one session log. The log is named by its agent and by the slug of the first input. So
// two sessions of an agent that begin with the same words are two runs of one log, and can be compared turn by
// turn. The times of the runs are in the file, as created and started. If two first inputs have the same slug,
// the second log has a digest in its name.
//
// A session log is made to be edited. A value filled in as expected stays with the turn, a value filled in as
// evaluation stays with the run that it judges, and added fields stay. Comments are lost. Every turn reads the
// file again and replaces it atomically. Only one process at a time may write the logs of an agent, because a
// second one could overwrite new turns.
//
// A log keeps at most 20 runs and 500 turns, and an agent at most 500 logs. The oldest are removed, except
// turns and logs that a person has edited.
package sessionlog

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// EnvVariable is the environment variable that overrides a Config (CO-57).
const EnvVariable = "TROUPE_LOG"

// DefaultFolder is the folder used if a Config has none.
const DefaultFolder = ".troupe"

// These are the limits of what is kept (CO-58).
const (
	MaxRuns  = 20  // runs of a session log
	MaxTurns = 500 // turns in a session log
	MaxLogs  = 500 // session logs of an agent
)

// Config says which logs to write, and where.
type Config struct {
	Agent        string // name of the agent; required
	Model        string // default model of a turn
	SystemPrompt string

	// Folder is the folder for the files (empty means DefaultFolder). If it ends in .log, it is the path of the
	// plain log instead, and session logs are written to DefaultFolder.
	Folder string
	// Off disables all files.
	Off bool
	// Quiet disables the console but not the files.
	Quiet bool
	// Console also receives the lines of the plain log (nil for none).
	Console io.Writer

	// Lookup reads the environment, as os.LookupEnv does (nil for no environment). The value of EnvVariable
	// overrides Folder and Off. "off", "false" or "0" sets Off; "on", "true" or "1" clears it. Any other value
	// becomes the Folder and clears Off.
	Lookup func(name string) (value string, ok bool)
}

// Log is the log of one agent. It is safe for concurrent use.
type Log struct {
	config  Config
	console io.Writer // (nil for none)
	cwd     string

	linesMu sync.Mutex // guards the plain log and the console
	plain   *os.File   // (nil for none)

	turnsMu sync.Mutex
	root    *os.Root // the folder (nil for no session logs)
	runs    map[string]run
}

// Open creates the folder and the plain log so that only the user of the process can read them. The error has mode
// agent_validation for an invalid Config, and otherwise mode system_disk with the path.
func Open(c Config) (*Log, error) {
	if c.Agent == "" {
		return nil, failure.New(failure.AgentValidation, "sessionlog.Open", "Agent is missing; a log is named by its agent")
	}
	l := &Log{config: c, runs: map[string]run{}}
	if !c.Quiet {
		l.console = c.Console
	}
	folder, plain, off := c.paths()
	if off {
		return l, nil
	}
	if path, err := l.openFiles(folder, plain); err != nil {
		_ = l.Close()
		return nil, newDiskError("sessionlog.Open", path, err)
	}
	return l, nil
}

// paths returns the folder, the path of a plain log outside of it (empty means inside), and whether files are
// disabled.
func (c Config) paths() (folder, plain string, off bool) {
	folder, off = c.Folder, c.Off
	if c.Lookup != nil {
		switch value, _ := c.Lookup(EnvVariable); strings.ToLower(value) {
		case "":
		case "off", "false", "0":
			off = true
		case "on", "true", "1":
			off = false
		default:
			folder, off = value, false
		}
	}
	if strings.HasSuffix(folder, ".log") {
		return DefaultFolder, folder, off
	}
	if folder == "" {
		folder = DefaultFolder
	}
	return folder, "", off
}

// openFiles opens the files. If it returns an error, path is the file that failed.
func (l *Log) openFiles(folder, plain string) (path string, err error) {
	l.cwd, _ = os.Getwd() // informative only; empty if the working directory was removed
	if err := os.MkdirAll(folder, folderMode); err != nil {
		return folder, err
	}
	if l.root, err = os.OpenRoot(folder); err != nil {
		return folder, err
	}
	const flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if plain != "" { // may be outside the folder
		if err := os.MkdirAll(filepath.Dir(plain), folderMode); err != nil {
			return plain, err
		}
		l.plain, err = os.OpenFile(plain, flags, fileMode) //nolint:gosec // the operator names it
		return plain, err
	}
	if err := l.root.MkdirAll("logs", folderMode); err != nil {
		return folder, err
	}
	l.plain, err = l.root.OpenFile(filepath.Join("logs", safeName(l.config.Agent)+".log"), flags, fileMode)
	return folder, err
}

// Close closes the files. Logging after that fails. It may be called more than once, and on a nil Log.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.linesMu.Lock()
	defer l.linesMu.Unlock()
	l.turnsMu.Lock()
	defer l.turnsMu.Unlock()
	var failed []error
	if l.plain != nil {
		failed = append(failed, l.plain.Close())
	}
	if l.root != nil {
		failed = append(failed, l.root.Close())
	}
	if err := errors.Join(failed...); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// newDiskError returns the error for a file that cannot be written. It says what the user can do.
func newDiskError(op, path string, err error) error {
	return failure.Newf(failure.SystemDisk, op,
		"the log in %s cannot be written; make it writable, choose another path with %s=PATH, or disable it with %s=off", path, EnvVariable, EnvVariable).
		With("path", path).Because(err)
}
