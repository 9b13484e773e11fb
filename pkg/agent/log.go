package agent

import (
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/sessionlog"
	"github.com/troupe-dev/troupe/pkg/event"
)

// SessionLog configures the logs of an agent's turns. The plain log has one line for each event. The session log is a
// YAML file for each session, with the input, messages and result of its latest turns.
type SessionLog struct {
	// Folder is the folder of the log files (empty means .troupe). A path that ends in .log is the file of the
	// plain log itself; session logs are then in .troupe.
	Folder  string
	Off     bool      // writes no file
	Quiet   bool      // writes nothing to Console
	Console io.Writer // gets a copy of the plain log (nil for none)

	// Lookup reads the environment, like os.LookupEnv (nil means an empty environment). The variable TROUPE_LOG
	// overrides Folder and Off: "off", "false" or "0" sets Off, "on", "true" or "1" clears it, and any other value
	// is the Folder.
	Lookup func(name string) (value string, ok bool)
}

// openLog opens the session log of an agent. It returns nil if the agent has none.
func openLog(c Config, prompt string) (*sessionlog.Log, error) {
	if c.SessionLog == nil {
		return nil, nil
	}
	s := c.SessionLog
	config := sessionlog.Config{
		Agent: c.Name, SystemPrompt: prompt, Model: c.ModelName,
		Folder: s.Folder, Off: s.Off, Quiet: s.Quiet, Console: s.Console, Lookup: s.Lookup,
	}
	if c.Model != nil {
		config.Model = c.Model.Name()
	}
	return sessionlog.Open(config)
}

// turnLog writes one turn to the session log. An error while writing does not fail the turn.
type turnLog struct {
	agent         *Agent
	log           *sessionlog.Log // (nil writes nothing)
	systemPrompt  string          // of the model (empty before it is known)
	isTurnWritten bool            // the turn, as a whole
}

func newTurnLog(a *Agent) *turnLog { return &turnLog{agent: a, log: a.sessionLog} }

// writeEvent writes an event to the plain log (CO-56).
func (l *turnLog) writeEvent(t *turn, e event.Event) {
	if l.log == nil {
		return
	}
	if line, ok := sessionlog.NewEventLine(t.inv.Step.SessionID, t.inv.Step.Turn, e); ok {
		l.warn(l.log.WriteLine(line))
	}
}

// writeTurn writes the turn to the session log, once (CO-53, CO-54).
func (l *turnLog) writeTurn(t *turn, err error) {
	if l.log == nil || l.isTurnWritten {
		return
	}
	l.isTurnWritten = true
	done := t.lastEvent(err)
	l.warn(l.log.WriteTurn(sessionlog.Turn{
		Session: t.inv.Step.SessionID, Number: t.inv.Step.Turn, Input: t.control.Turn().Info().Prompt, Model: l.agent.Model(), SystemPrompt: l.systemPrompt,
		Started: t.started, Duration: time.Since(t.started), Usage: done.Result.Usage, ToolsCalled: t.control.Turn().ToolsCalled(),
		Result: done.Result.Text, Reason: string(done.Reason), Err: err, Messages: t.control.Turn().Messages(),
	}))
}

// warn logs an error of the session log as a warning.
func (l *turnLog) warn(err error) {
	if err != nil {
		l.agent.config.Log.Warn("the session log cannot be written", zap.String("agent", l.agent.Name()), zap.Error(err))
	}
}
