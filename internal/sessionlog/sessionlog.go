// Package sessionlog writes down what an agent does, for the person who develops it: a plain
// log with a line for each thing that happens, and session logs in YAML with what was asked,
// what came of it and what it took (CO-53 to CO-58). It knows no agent and no loop: it is
// given plain values.
//
// The files, all under Config.Folder:
//
//	logs/AGENT.log                 the plain log
//	evals/AGENT/SLUG.yaml          a session log: its turns
//	evals/AGENT/SLUG/run_N.yaml    a run of it: its settings and messages
//
// Each session writes to one session log. The log is named by its agent and by the slug of
// the first input, so two sessions of an agent that begin with the same words are two runs
// of one log, and can be compared turn by turn. When it began is inside, as created and
// started, and not in its name. A log whose slug is that of another first input has a digest
// behind it.
//
// A session log is made to be edited: what a person fills in as expected stays with the
// turn, what they fill in as evaluation stays with the run that it judges, fields of their
// own stay where they are. Comments do not. Every turn reads the file anew and replaces it
// in one piece, so a reader never sees half of it. One process at a time may write the logs
// of an agent: of two, one may overwrite what the other has just added.
//
// There are at most 20 runs of a log, 500 turns in it, and 500 logs of an agent. The oldest
// make room, but never a turn or a log in which a person filled in something.
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

// Variable is the one of the environment that overrides a Config (CO-57).
const Variable = "TROUPE_LOG"

// DefaultFolder is that of a Config that names none.
const DefaultFolder = ".troupe"

// What is kept (CO-58).
const (
	MaxRuns  = 20  // of a session log
	MaxTurns = 500 // in a session log
	MaxLogs  = 500 // of an agent
)

// Config says what is written, and where.
type Config struct {
	Agent        string // name of the agent; needed
	Model        string // of turns that name none
	SystemPrompt string

	// Folder is where the files are, DefaultFolder when it is empty. A path that ends in .log
	// is that of the plain log itself; session logs are in DefaultFolder then.
	Folder string
	// Off writes no file at all.
	Off bool
	// Quiet writes nothing to the console. It does not concern the files.
	Quiet bool
	// Console gets the lines of the plain log too. Nil: there is none.
	Console io.Writer

	// Lookup reads the environment, as os.LookupEnv does. Nil: there is none. The Variable
	// overrides Folder and Off: "off", "false" or "0" is Off, "on", "true" or "1" is not Off,
	// anything else is the Folder, and not Off.
	Lookup func(name string) (value string, ok bool)
}

// Log is the log of one agent. It is safe for concurrent use.
type Log struct {
	config  Config
	console io.Writer // nil: none
	cwd     string

	lines sync.Mutex // of the plain log and the console
	plain *os.File   // nil: none

	turns sync.Mutex
	root  *os.Root // the folder; nil: no session logs
	runs  map[string]run
}

// Open makes the folder and the plain log, readable for their user alone. An error names the
// path, and is of mode system_disk; of mode agent_validation when the Config is not valid.
func Open(c Config) (*Log, error) {
	if c.Agent == "" {
		return nil, failure.New(failure.AgentValidation, "sessionlog.Open", "Agent is missing; a log is named by its agent")
	}
	l := &Log{config: c, runs: map[string]run{}}
	if !c.Quiet {
		l.console = c.Console
	}
	folder, plain, off := c.places()
	if off {
		return l, nil
	}
	if path, err := l.open(folder, plain); err != nil {
		_ = l.Close()
		return nil, disk("sessionlog.Open", path, err)
	}
	return l, nil
}

// places are the folder, the path of the plain log when it is not in it, and whether there
// are files at all.
func (c Config) places() (folder, plain string, off bool) {
	folder, off = c.Folder, c.Off
	if c.Lookup != nil {
		switch value, _ := c.Lookup(Variable); strings.ToLower(value) {
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

// open returns the path that an error is about.
func (l *Log) open(folder, plain string) (path string, err error) {
	l.cwd, _ = os.Getwd() // for a person; a process whose folder is gone has none
	if err := os.MkdirAll(folder, private); err != nil {
		return folder, err
	}
	if l.root, err = os.OpenRoot(folder); err != nil {
		return folder, err
	}
	const flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if plain != "" { // where the operator wants it, inside the folder or not
		if err := os.MkdirAll(filepath.Dir(plain), private); err != nil {
			return plain, err
		}
		l.plain, err = os.OpenFile(plain, flags, secret) //nolint:gosec // the operator names it
		return plain, err
	}
	if err := l.root.MkdirAll("logs", private); err != nil {
		return folder, err
	}
	l.plain, err = l.root.OpenFile(filepath.Join("logs", fileName(l.config.Agent)+".log"), flags, secret)
	return folder, err
}

// Close closes the files. What is logged later is an error. It may be called more than once.
func (l *Log) Close() error {
	l.lines.Lock()
	defer l.lines.Unlock()
	l.turns.Lock()
	defer l.turns.Unlock()
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

// disk is an error of a file for the person who can do something about it.
func disk(op, path string, err error) error {
	return failure.Newf(failure.SystemDisk, op,
		"the log in %s cannot be written; make it writable, choose another place with %s=PATH, or go without with %s=off", path, Variable, Variable).
		With("path", path).Because(err)
}
