// Package toollog writes a line for each tool call: which tool, how it ended, and how long it
// took. What went in and came out is left out, because it may be anybody's (guarantee S8).
package toollog

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

// Name is that of the plugin.
const Name = "toollog"

// ReasonFailed is that of the warning when a line could not be written.
const ReasonFailed = "TOOL_LOG_FAILED"

// MaxText is how much of a name, of arguments and of a result stands in a line, in bytes.
const MaxText = 1 << 10

// Config says where lines go: to one of Log and Writer.
type Config struct {
	Log       *zap.Logger
	Writer    io.Writer // gets each line in one Write, one at a time
	Arguments bool      // write the arguments too
	Results   bool      // write what the model reads of the result too
}

// New returns the plugin that c describes. Modes: agent_validation.
//
// Control characters and others that cannot be seen stand in a line as escapes: neither a
// model nor a tool can make a line of its own, or speak to a terminal. A call that a lost
// worker made is written again by its successor, as replayed.
func New(c Config) (hook.Plugin, error) {
	if (c.Log == nil) == (c.Writer == nil) {
		return hook.Plugin{}, failure.New(failure.AgentValidation, "toollog.New", "Log or Writer: give one of the two, to say where lines go")
	}
	w := &writer{config: c}
	return hook.Plugin{Name: Name, Handlers: []hook.Handler{hook.AfterEachTool(w.tool)}}, nil
}

type writer struct {
	config Config
	mu     sync.Mutex
}

// field is one word of a line.
type field struct{ name, text string }

func (w *writer) tool(_ context.Context, c *hook.Call) error {
	info := c.Info()
	line := []field{
		{"agent", info.Agent},
		{"session", info.Session},
		{"turn", info.TurnID},
		{"call", c.ID},
		{"tool", c.Name},
		{"status", string(c.Status)},
		{"duration", c.Duration.Round(time.Microsecond).String()},
	}
	if c.Replayed {
		line = append(line, field{"replayed", "true"})
	}
	if w.config.Arguments {
		line = append(line, field{"arguments", c.Arguments})
	}
	if w.config.Results {
		line = append(line, field{"result", c.Text})
	}
	for i := range line {
		line[i].text = visible(line[i].text)
	}
	if err := w.write(line); err != nil {
		c.Warn(ReasonFailed, "the log of tool calls could not be written; the turn goes on without a line in it")
	}
	return nil
}

func (w *writer) write(line []field) error {
	if w.config.Log != nil {
		fields := make([]zap.Field, len(line))
		for i, f := range line {
			fields[i] = zap.String(f.name, f.text)
		}
		w.config.Log.Info("tool call", fields...)
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
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := io.WriteString(w.config.Writer, b.String())
	return err
}

// visible is the beginning of a text in which all that cannot be seen is an escape.
func visible(text string) string {
	begin := conversation.Cut(text, MaxText)
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
