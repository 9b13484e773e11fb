package sessionlog

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// LineKind says what a line of the plain log is about.
type LineKind string

// The kinds of lines.
const (
	UserInput LineKind = "user"
	ModelCall LineKind = "model"
	ToolCall  LineKind = "tool"
	Result    LineKind = "result"
	Warning   LineKind = "warning"
)

// Line is one line of the plain log.
type Line struct {
	Kind     LineKind
	Session  string // (empty if it belongs to no session)
	Turn     int    // number of the turn in the session (0 if the line belongs to no turn)
	Text     string // written as one line, cut after maxLineText bytes
	Duration time.Duration
	Usage    execution.Usage
	Time     time.Time // (zero means now)
}

// NewEventLine returns the line for an event of a turn. It returns false for an event that the plain log does not show.
func NewEventLine(session string, turn int, e event.Event) (Line, bool) {
	line := Line{Session: session, Turn: turn, Time: e.Time}
	switch p := e.Payload.(type) {
	case event.UserInput:
		line.Kind, line.Text = UserInput, p.Prompt
	case event.ModelCall:
		line.Kind, line.Text, line.Duration, line.Usage = ModelCall, p.Model, p.Duration, p.Usage
	case event.ToolFinished:
		line.Kind, line.Text, line.Duration = ToolCall, p.Tool+": "+string(p.Status), p.Duration
	case event.ToolPending:
		line.Kind, line.Text = ToolCall, p.Tool+": "+string(event.ToolWaiting)
	case event.Warning:
		line.Kind, line.Text = Warning, p.Message
	case event.TurnResult:
		line.Kind, line.Text, line.Duration, line.Usage = Result, string(p.Reason), p.Duration, p.Result.Usage
	default:
		return Line{}, false
	}
	return line, true
}

// maxLineText limits the text of a line, so that lines stay readable. The session log holds the whole text.
const maxLineText = 4 << 10

// WriteLine writes a line to the plain log and to the console (CO-56). An error of the console is ignored.
func (l *Log) WriteLine(line Line) error {
	l.linesMu.Lock()
	defer l.linesMu.Unlock()
	if line.Time.IsZero() {
		line.Time = time.Now()
	}
	if l.console != nil {
		_, _ = fmt.Fprintln(l.console, line.format("15:04:05"))
	}
	if l.plain == nil {
		return nil
	}
	if _, err := fmt.Fprintln(l.plain, line.format("2006-01-02T15:04:05.000Z07:00")); err != nil {
		return newDiskError("sessionlog.Line", l.plain.Name(), err)
	}
	return nil
}

func (line Line) format(layout string) string {
	parts := []string{line.Time.Format(layout)}
	if line.Session != "" || line.Turn > 0 {
		parts = append(parts, fmt.Sprintf("%s/%d", singleLine(line.Session), line.Turn))
	}
	parts = append(parts, fmt.Sprintf("%-7s", line.Kind))
	text := conversation.Truncate(line.Text, maxLineText)
	if text != line.Text {
		text += "…"
	}
	parts = append(parts, singleLine(text))
	if line.Duration > 0 {
		parts = append(parts, line.Duration.Round(time.Millisecond/10).String())
	}
	if u := line.Usage; u.InputTokens+u.OutputTokens > 0 {
		parts = append(parts, fmt.Sprintf("%d+%d tokens", u.InputTokens, u.OutputTokens))
	}
	if line.Usage.CostMicros > 0 {
		parts = append(parts, fmt.Sprintf("$%.6f", float64(line.Usage.CostMicros)/1e6))
	}
	return strings.Join(parts, "  ")
}

// singleLine escapes line breaks and control characters, so that text of a model or user can neither look like
// another line nor control the terminal.
func singleLine(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
