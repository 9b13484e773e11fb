package turns

import (
	_ "embed"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/delta"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/messages"
)

//go:embed scripts/origin.lua
var originSource string

// firstOptionalArg is the index in ARGV of the first argument that only some turns have.
const firstOptionalArg = 29

// beginAttempt is one attempt to run begin.lua.
type beginAttempt struct {
	request      memory.Begin
	windowLength int // number of messages to read for the window
	leastEpoch   int64
	files        files
	predecessor  predecessor
}

// keysAndArgs returns the KEYS and ARGV of begin.lua.
func (a beginAttempt) keysAndArgs(cfg Config) (keys []string, args []any, _ error) {
	b, p := a.request, a.predecessor
	answers, err := db.Encoding.Marshal(&troupev1.Answers{Answers: wire.AnswersToProto(b.Predecessor.Answers)})
	if err != nil {
		return nil, nil, err
	}
	body, err := a.files.encodeMessage()
	if err != nil {
		return nil, nil, err
	}
	files, err := a.files.args()
	if err != nil {
		return nil, nil, err
	}
	origin, err := originArgs(b)
	if err != nil {
		return nil, nil, err
	}
	keys = db.TurnKeys(b.Ref, b.TurnID, append([]string{"turns", "out"}, p.keys...)...)
	args = slices.Concat([]any{
		b.TurnID, b.TraceID, b.Fingerprint, b.User, body, conversation.Size(b.Message),
		b.LeaseTTL.Milliseconds(), a.windowLength, a.leastEpoch,
		cfg.MaxMessages, cfg.MaxBytes, Retention.Milliseconds(),
		b.LookupOnly, b.LostEpoch, p.name, p.encodedFailure, messages.MaxReadBytes, p.partial.Step, p.partial.Body, p.partial.Size,
		b.Predecessor.Continues, answers, b.Predecessor.Resumes, indexUnlessEmpty(origin,
			firstOptionalArg+len(files)), b.TakeoverGrace.Milliseconds(), len(keys) + 1,
		conversation.MostRestrictiveSource(p.partial.Untrusted, b.UntrustedSource()), db.FormatSteps(p.partial.Journals),
	}, files, origin)
	return append(keys, a.files.keys()...), args, nil
}

// indexUnlessEmpty returns the index at which args begin (0 if there are no args).
func indexUnlessEmpty(args []any, at int) int {
	if len(args) == 0 {
		return 0
	}
	return at
}

// newResumePredecessor returns the keys that a turn needs to resume a failed turn, or to begin with a copy.
func newResumePredecessor(b memory.Begin) predecessor {
	switch {
	case b.Predecessor.Resumes != "":
		return predecessor{keys: []string{"turn:" + b.Predecessor.Resumes}}
	case b.Predecessor.Copy != nil:
		keys := []string{"state"}
		for _, agent := range agentsOfCopy(b.Predecessor.Copy) {
			keys = append(keys, db.RoundsName(agent))
		}
		return predecessor{keys: keys}
	default:
		return predecessor{}
	}
}

// agentsOfCopy returns the names of the agents that have rounds in a copy, sorted.
func agentsOfCopy(c *memory.Copy) []string {
	return slices.Sorted(maps.Keys(c.Rounds))
}

// newResumePredecessorWithJournals is like newResumePredecessor, and adds the journal keys of the steps that the
// script named. steps is a comma-separated list.
func newResumePredecessorWithJournals(b memory.Begin, steps string) predecessor {
	p := newResumePredecessor(b)
	p.name = steps
	for step := range strings.SplitSeq(steps, ",") {
		n := int(db.ParseNumber(step))
		p.keys = append(p.keys, db.JournalName(b.Predecessor.Resumes, n), db.JournalName(b.TurnID, n))
	}
	return p
}

// originArgs returns the arguments of origin.lua. There are none for a turn that neither resumes a failed turn nor
// begins with a copy.
func originArgs(b memory.Begin) ([]any, error) {
	if b.Predecessor.Resumes == "" && b.Predecessor.Copy == nil {
		return nil, nil
	}
	args := []any{len(b.Predecessor.Inherited)}
	for _, r := range b.InheritedSteps() {
		result, err := db.Encoding.Marshal(wire.ResultToProto(r))
		if err != nil {
			return nil, err
		}
		args = append(args, r.Step, result)
	}
	if b.Predecessor.Copy == nil {
		return append(args, "0", journal.Retention.Milliseconds()), nil
	}
	summary, history := b.Predecessor.Copy.SplitSummary()
	flag, text := "0", ""
	if summary != nil {
		flag, text = "1", summary.Text
	}
	copied, size := []any{}, 0
	for _, m := range slices.Concat(history, b.Predecessor.Copy.StepMessages) {
		stored, err := messages.EncodeBody(m)
		if err != nil {
			return nil, err
		}
		copied, size = append(copied, max(0, m.Time.UnixMilli()), stored), size+conversation.Size(m)
	}
	rounds, bytes, err := copiedRoundsArgs(b.Predecessor.Copy)
	if err != nil {
		return nil, err
	}
	args = append(args, "1", flag, text, size, len(history), len(b.Predecessor.Copy.StepMessages),
		strings.Join(agentsOfCopy(b.Predecessor.Copy), " "), bytes, len(rounds)/copiedRoundsFields)
	return slices.Concat(args, copied, rounds, delta.SortedPairs(b.Predecessor.Copy.State)), nil
}

// copiedRoundsFields is the number of arguments of origin.lua for the rounds of one step.
const copiedRoundsFields = 6

// copiedRoundsArgs returns the arguments of origin.lua for the rounds of a copy, and their bytes.
func copiedRoundsArgs(c *memory.Copy) (args []any, bytes int, _ error) {
	for i, agent := range agentsOfCopy(c) {
		for _, r := range c.Rounds[agent] {
			var messages []memory.RoundMessage
			for _, m := range r.Messages {
				messages = append(messages, memory.RoundMessage{Message: m})
			}
			encoded, _, err := journal.EncodeRounds(messages)
			if err != nil {
				return nil, 0, err
			}
			args, bytes = append(args, i+1, r.After, r.Turn, r.Step, len(encoded), encoded), bytes+len(encoded)
		}
	}
	return args, bytes, nil
}
