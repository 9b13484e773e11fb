package plugin

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// ToolLog writes a line for each tool call: which tool, how it ended, and how long it took. Arguments and results are
// left out by default, because they may hold personal data (guarantee S8). Lines go either to Log or to Writer.
type ToolLog struct {
	Log       *zap.Logger
	Writer    io.Writer // gets each line in one Write; writes do not overlap
	Arguments bool      // also write the arguments
	Results   bool      // also write the part of the result that the model reads
}

// NewToolLog returns the plugin that c describes. Modes: agent_validation.
//
// Control characters and invisible characters are escaped, so that neither a model nor a tool can forge a line or control
// a terminal. The successor of a lost worker writes its calls again, marked as replayed.
func NewToolLog(c ToolLog) (hook.Plugin, error) {
	if (c.Log == nil) == (c.Writer == nil) {
		return hook.Plugin{}, failure.New(failure.AgentValidation, "plugin.NewToolLog", "Log or Writer: give one of the two, to say where lines go")
	}
	w := &toolLog{config: c}
	return hook.Plugin{Name: ToolLogName, Handlers: []hook.Handler{hook.AfterEachTool(w.logCall)}}, nil
}

type toolLog struct {
	config ToolLog
	mu     sync.Mutex
}

// logField is one name=text pair of a log line.
type logField struct{ name, text string }

func (t *toolLog) logCall(_ context.Context, c *hook.Call) error {
	info := c.Info()
	line := []logField{
		{"agent", info.Agent},
		{"session", info.Session},
		{"turn", info.TurnID},
		{"call", c.ID},
		{"tool", c.Name},
		{"status", string(c.Status)},
		{"duration", c.Duration.Round(time.Microsecond).String()},
	}
	if c.Replayed {
		line = append(line, logField{"replayed", "true"})
	}
	if t.config.Arguments {
		line = append(line, logField{"arguments", c.Arguments})
	}
	if t.config.Results {
		line = append(line, logField{"result", c.Text})
	}
	for i := range line {
		line[i].text = escapeAndTruncate(line[i].text)
	}
	if err := t.write(line); err != nil {
		c.Warn(ReasonToolLogFailed, "the log of tool calls could not be written; the turn continues without this line")
	}
	return nil
}

func (t *toolLog) write(line []logField) error {
	if t.config.Log != nil {
		fields := make([]zap.Field, len(line))
		for i, f := range line {
			fields[i] = zap.String(f.name, f.text)
		}
		t.config.Log.Info("tool call", fields...)
		return nil
	}
	var b strings.Builder
	b.WriteString(time.Now().UTC().Format(time.RFC3339Nano))
	for _, f := range line {
		if strings.ContainsAny(f.text, ` "=\`) || f.text == "" {
			f.text = `"` + strings.ReplaceAll(f.text, `"`, `\"`) + `"`
		}
		fmt.Fprintf(&b, " %s=%s", f.name, f.text)
	}
	b.WriteByte('\n')
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := io.WriteString(t.config.Writer, b.String())
	return err
}

// escapeAndTruncate returns the first MaxLoggedText bytes of a text, with invisible characters escaped.
func escapeAndTruncate(text string) string {
	begin := conversation.Truncate(text, MaxLoggedText)
	var b strings.Builder
	for _, r := range begin {
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	if begin != text {
		b.WriteString("…")
	}
	return b.String()
}
