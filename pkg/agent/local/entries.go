package local

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// entryLog holds the latest trace entries of a session, as later turns read them (CO-68). It is safe for concurrent use.
type entryLog struct {
	mu      sync.Mutex
	entries []event.Event
	sizes   []int
	bytes   int // at most memory.MaxWindowBytes, as in a mesh
}

// add adds the events of a turn, except those that are no entries of a trace.
func (l *entryLog) add(events ...event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		var size int
		if e.Payload, size = shortened(e.Payload); size < 0 || strings.HasPrefix(e.Kind(), event.InternalPrefix) {
			continue
		}
		l.entries, l.sizes, l.bytes = append(l.entries, e), append(l.sizes, size), l.bytes+size
	}
	for len(l.entries) > execution.MaxEntries || l.bytes > memory.MaxWindowBytes {
		l.bytes -= l.sizes[0]
		l.entries, l.sizes = l.entries[1:], l.sizes[1:]
	}
}

// shortened returns the payload as an entry of an earlier turn has it in a mesh, too, and about how many bytes it takes. The
// size is below 0 for a payload that a mesh does not store.
func shortened(p event.Payload) (event.Payload, int) {
	const header = 128 // bytes
	switch p := p.(type) {
	case event.UserInput:
		p.Prompt = conversation.Excerpt(p.Prompt, maxPrompt)
		return p, header + len(p.Prompt)
	case event.ToolStarted:
		return p, header + len(p.Arguments)
	case event.ToolFinished:
		p.Summary = conversation.Excerpt(p.Summary, event.MaxSummaryChars)
		p.Result, p.Arguments = p.Summary, ""
		return p, header + len(p.Summary)
	case event.Message:
		return event.Message{Text: p.Text}, header + len(p.Text)
	case event.ArtifactUpdate:
		p.Data = nil
		return p, header
	case event.Thinking:
		return p, header + len(p.Text)
	case event.TurnResult:
		return event.TurnResult{
			Turn: p.Turn, Reason: p.Reason, Usage: p.Usage, ErrorType: p.ErrorType, Duration: p.Duration, Result: execution.Result{Agent: p.Result.Agent},
		}, header
	case event.MessageAppended, event.Answer, event.FilesReceived, event.PlanMade, event.Error:
		return p, -1
	default:
		return p, header
	}
}

// maxPrompt is the maximum length of a prompt in an entry, in characters.
const maxPrompt = 200

// latest returns at most limit of the latest entries.
func (l *entryLog) latest(_ context.Context, limit int) ([]event.Event, error) {
	if limit <= 0 {
		limit = execution.MaxEntries
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries[max(0, len(l.entries)-limit):]), nil
}

// clear removes all entries.
func (l *entryLog) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.sizes, l.bytes = nil, nil, 0
}
