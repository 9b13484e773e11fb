package sessionlog

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Turn holds what is logged about a finished turn, with or without an answer (CO-54). Its numbers cover this turn
// only.
type Turn struct {
	Session string
	Number  int // number in the session, from 1

	Input        string
	Model        string // (empty means the model of the Config)
	SystemPrompt string // as the model got it (empty means the one of the Config)
	Started      time.Time
	Duration     time.Duration
	Usage        execution.Usage // a cost of 0 means unknown
	ToolsCalled  []string        // in the order of the calls
	Result       string
	Reason       string // why the turn ended, such as natural or max_iterations
	Err          error  // why the turn has no answer

	Messages []conversation.Message // messages of the session, up to and including this turn
}

// maxCachedRuns limits how many sessions a Log caches. It reads other sessions from disk again.
const maxCachedRuns = 1000

// run identifies the run file of a session and holds the totals of its turns.
type run struct {
	name       string // name of the session log
	firstInput string // first input of the session
	number     int
	duration   time.Duration // sum over its turns
	usage      execution.Usage
}

// WriteTurn writes a turn to the log of its session: first to the run file, then as the latest outcome in the
// session log (CO-53, CO-55, CO-58). Writing the same turn again replaces it. An error names the file that could
// not be written; that file is unchanged.
func (l *Log) WriteTurn(t Turn) error {
	l.turnsMu.Lock()
	defer l.turnsMu.Unlock()
	if l.root == nil {
		return nil
	}
	t.Session, t.Input = toValidUTF8(t.Session), toValidUTF8(t.Input)
	t.Model, t.SystemPrompt = cmp.Or(t.Model, l.config.Model), cmp.Or(t.SystemPrompt, l.config.SystemPrompt)
	if t.Started.IsZero() {
		t.Started = time.Now().Add(-t.Duration)
	}
	r, known := l.runs[t.Session]
	if !known || t.Session == "" && t.Number <= 1 {
		var err error
		if r, err = l.findRun(t); err != nil {
			return err
		}
	}
	log, err := l.readLog(r.name)
	if err != nil {
		return err
	}
	r.duration += t.Duration
	r.usage = r.usage.Add(t.Usage)
	if err := l.writeRun(r, t); err != nil {
		return err
	}
	if log == nil {
		if err := l.removeOldestLogs(); err != nil {
			return err
		}
		log = &sessionLog{Name: r.name, Agent: yamlText(l.config.Agent), Input: yamlText(r.firstInput), Created: truncateToMillis(t.Started)}
	}
	log.addTurn(r, t)
	if err := l.writeLog(r.name, log); err != nil {
		return err
	}
	if len(l.runs) >= maxCachedRuns {
		clear(l.runs)
	}
	l.runs[t.Session] = r
	return l.removeOldRuns(r.name, log.Runs-MaxRuns)
}

// findRun returns the run of a session that is not cached. It is a run that an earlier process wrote, or a new
// one.
func (l *Log) findRun(t Turn) (run, error) {
	r := run{firstInput: firstInput(t)}
	for _, r.name = range candidateNames(r.firstInput) {
		log, err := l.readLog(r.name)
		if err != nil {
			return r, err
		}
		if log == nil {
			r.number = 1
			return r, nil
		}
		if log.Input == yamlText(r.firstInput) {
			return l.resumeOrStartRun(r, log, t.Session)
		}
	}
	return r, failure.Newf(failure.SystemDisk, "sessionlog.Turn",
		"the session log %s belongs to another input; move it away", l.displayPath(logPath(l.config.Agent, r.name)))
}

func (l *Log) resumeOrStartRun(r run, log *sessionLog, session string) (run, error) {
	for number, s := range log.Sessions {
		if s == yamlText(session) && session != "" {
			r.number = number
			return r, l.readRun(&r)
		}
	}
	r.number = log.Runs + 1
	return r, nil
}

// firstInput returns the first input of the session, after which the log is named. In later turns it comes from
// the messages.
func firstInput(t Turn) string {
	if t.Number > 1 {
		if i := slices.IndexFunc(t.Messages, func(m conversation.Message) bool { return m.Role == conversation.RoleUser }); i >= 0 {
			return toValidUTF8(t.Messages[i].Text)
		}
	}
	return t.Input
}

// addTurn adds a turn of a run to the session log, and removes the oldest turns above the limit.
func (s *sessionLog) addTurn(r run, t Turn) {
	if s.Runs < r.number { // this is the first turn of a new run
		s.Runs, s.Started = r.number, truncateToMillis(t.Started)
	}
	s.Updated = truncateToMillis(time.Now())
	if s.Runs == r.number {
		s.Model = yamlText(t.Model)
	}
	if s.Sessions == nil {
		s.Sessions = map[int]yamlText{}
	}
	s.Sessions[r.number] = yamlText(t.Session)
	for number := range s.Sessions {
		if number <= s.Runs-MaxRuns {
			delete(s.Sessions, number)
		}
	}
	at := slices.IndexFunc(s.Turns, func(e turnEntry) bool { return e.Turn == t.Number && e.Input == yamlText(t.Input) })
	if at < 0 {
		s.Turns = append(s.Turns, turnEntry{Turn: t.Number, Input: yamlText(t.Input), Expected: emptyNode(), History: []turnOutcome{}})
		at = len(s.Turns) - 1
	}
	s.Turns[at].setOutcome(t.outcomeInRun(r.number))
	slices.SortStableFunc(s.Turns, func(a, b turnEntry) int { return cmp.Compare(a.Turn, b.Turn) })
	for len(s.Turns) > MaxTurns {
		old := slices.IndexFunc(s.Turns, func(e turnEntry) bool { return !e.isEdited() })
		if old < 0 {
			return
		}
		s.Turns = slices.Delete(s.Turns, old, old+1)
	}
}

// outcomeInRun returns the outcome of the turn in the given run.
func (t Turn) outcomeInRun(run int) turnOutcome {
	o := turnOutcome{
		Run: run, Model: yamlText(t.Model), Output: yamlText(t.Result), Reason: yamlText(t.Reason), ToolsCalled: []yamlText{},
		Evaluation: emptyNode(),
	}
	for _, name := range t.ToolsCalled {
		o.ToolsCalled = append(o.ToolsCalled, yamlText(name))
	}
	if t.Err != nil {
		o.Error = yamlText(failure.PlainMessage(t.Err))
	}
	meta, _ := json.Marshal(turnUsage{ // encoding numbers and a time cannot fail
		Tokens: t.Usage.InputTokens + t.Usage.OutputTokens, InputTokens: t.Usage.InputTokens, OutputTokens: t.Usage.OutputTokens,
		Cost: costInDollars(t.Usage), DurationMS: milliseconds(t.Duration), TS: truncateToMillis(t.Started),
	})
	o.Meta = string(meta)
	return o
}

// turnUsage is the usage of a turn, as stored in the field meta.
type turnUsage struct {
	Tokens       int64     `json:"tokens"`
	InputTokens  int64     `json:"input_tokens"`
	OutputTokens int64     `json:"output_tokens"`
	Cost         *float64  `json:"cost"` // in US dollars (null if unknown)
	DurationMS   float64   `json:"duration_ms"`
	TS           time.Time `json:"ts"`
}

// milliseconds returns a duration in milliseconds, with microseconds as its fraction (CO-70).
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func costInDollars(u execution.Usage) *float64 {
	if u.CostMicros == 0 {
		return nil
	}
	cost := float64(u.CostMicros) / 1e6
	return &cost
}

func truncateToMillis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func logPath(agent, name string) string {
	return filepath.Join("evals", safeName(agent), name+".yaml")
}
