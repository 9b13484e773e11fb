// Package journal stores the journals of steps. With a journal, a successor of a worker does not repeat completed
// work, and a finished step can be run again.
package journal

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
)

//go:embed scripts/journal.lua
var journalSource string

//go:embed scripts/page.lua
var pageSource string

//go:embed scripts/replay.lua
var replaySource string

//go:embed scripts/recording.lua
var recordingSource string

var (
	journalScript   = db.Register("journal", db.TurnSource, journalSource)
	replayScript    = db.Register("replay", db.TurnSource, pageSource, replaySource)
	recordingScript = db.Register("recording", db.TurnSource, pageSource, recordingSource)
)

// Retention is how long the journal of an open step is kept for a successor of its worker.
const Retention = 24 * time.Hour

// Journal implements memory.Journal. It is safe for concurrent use.
type Journal struct {
	db        *db.DB
	retention time.Duration
}

// New returns a journal store backed by d. It keeps the journal of a step for the time keep after the step (0
// means that the commit of the step deletes it).
func New(d *db.DB, keep time.Duration) *Journal { return &Journal{d, keep} }

// Record implements memory.Journal.
func (j *Journal) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	const op = "memory.Record"
	args := []any{h.Epoch, step, memory.MaxJournalBytes, Retention.Milliseconds()}
	fields, err := encodeEntries(entries)
	if err != nil {
		return db.NewUnencodableError(op, err)
	}
	keys := db.TurnKeys(h.Ref, h.TurnID, db.JournalName(h.TurnID, step))
	r, err := j.db.RunScript(ctx, op, h.Ref, journalScript, keys, append(args, fields...)...)
	if err != nil {
		return err
	}
	switch r.Status() {
	case "step_committed":
		return db.NewStepCommittedError(op, h, step)
	case "nondeterminism":
		return nondeterminismError(op, step, entries, r)
	case "journal_full":
		return failure.Newf(failure.ResourceQuota, op, "the journal of step %d of turn %s holds %s bytes, and may hold %d; do less in one step",
			step, h.TurnID, r.Text(1), memory.MaxJournalBytes).With("bytes", r.Text(1)).With("max_bytes", strconv.Itoa(memory.MaxJournalBytes))
	default:
		return db.CheckWriteReply(op, h, r, nil)
	}
}

// LoadJournal implements memory.Journal.
func (j *Journal) LoadJournal(ctx context.Context, h memory.Lease, step, after int) ([]execution.Entry, error) {
	const op = "memory.LoadJournal"
	keys := db.TurnKeys(h.Ref, h.TurnID, db.JournalName(h.TurnID, step))
	r, err := j.db.RunReadOnlyScript(ctx, op, h.Ref, replayScript, keys, h.Epoch, after, memory.MaxWindowBytes)
	if err := db.CheckWriteReply(op, h, r, err); err != nil {
		return nil, err
	}
	return decodeEntries(op, r.Array(1))
}

// Recording implements memory.Journal.
func (j *Journal) Recording(ctx context.Context, ref session.Ref, turnID string, step, from int) ([]execution.Entry, error) {
	const op = "memory.Recording"
	keys := db.TurnKeys(ref, turnID, db.JournalName(turnID, step))
	r, err := j.db.RunReadOnlyScript(ctx, op, ref, recordingScript, keys, step, from-1, memory.MaxWindowBytes)
	if err != nil {
		return nil, err
	}
	if r.Status() != "ok" {
		return nil, db.TurnErrorFromReply(op, memory.Lease{Ref: ref, TurnID: turnID}, r)
	}
	return decodeEntries(op, r.Array(1))
}

// EncodeKeptEntries returns the journal entries of a commit as hash fields and values. It returns none if the
// store keeps no journals after a commit.
func (j *Journal) EncodeKeptEntries(entries []execution.Entry) ([]any, error) {
	if j.retention == 0 {
		return nil, nil
	}
	return encodeEntries(entries)
}

// RetentionAfterCommit returns how long a journal is kept after the commit of its step (0 means that it is
// deleted).
func (j *Journal) RetentionAfterCommit() time.Duration { return j.retention }

// RetentionAfterTurn returns how long the journal of the running step is kept after its turn ended with this
// outcome. A turn that resumes a failed turn needs the journal. A cancelled turn is never resumed.
func (j *Journal) RetentionAfterTurn(outcome session.Outcome) time.Duration {
	if outcome == session.OutcomeFailed {
		return max(Retention, j.retention)
	}
	return j.retention
}

// encodeEntries returns entries as the fields and values of a journal's hash.
func encodeEntries(entries []execution.Entry) ([]any, error) {
	var fields []any
	for _, e := range entries {
		value, err := db.Encoding.Marshal(wire.EntryToProto(e))
		if err != nil {
			return nil, err
		}
		fields = append(fields, entryField(e), value)
	}
	return fields, nil
}

// entryField returns the field of an entry in the hash of its journal.
func entryField(e execution.Entry) string {
	return strconv.Itoa(e.Number) + ":" + string(e.Phase[:1])
}

func decodeEntry(stored string) (execution.Entry, error) {
	var e troupev1.JournalEntry
	if err := proto.Unmarshal([]byte(stored), &e); err != nil {
		return execution.Entry{}, fmt.Errorf("entry of a journal: %w", err)
	}
	return wire.EntryFromProto(&e), nil
}

func decodeEntries(op string, list db.Reply) ([]execution.Entry, error) {
	var all []execution.Entry
	for i := range list {
		e, err := decodeEntry(list.Text(i))
		if err != nil {
			return nil, db.NewUnreadableError(op, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// decodeHashEntries decodes all entries in the hash of a journal, sorted by number.
func decodeHashEntries(stored map[string]string) ([]execution.Entry, error) {
	var entries []execution.Entry
	for field, value := range stored {
		if !strings.Contains(field, ":") {
			continue
		}
		e, err := decodeEntry(value)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b execution.Entry) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(b.Phase, a.Phase))
	})
	return entries, nil
}

// nondeterminismError returns the error for a step that does something other than its journal says. The error
// names both actions.
func nondeterminismError(op string, step int, entries []execution.Entry, r db.Reply) error {
	before, err := decodeEntry(r.Text(2))
	if err != nil {
		return db.NewUnreadableError(op, err)
	}
	now := entries[slices.IndexFunc(entries, func(e execution.Entry) bool {
		return e.Number == before.Number && e.Phase == before.Phase
	})]
	return failure.Newf(failure.Nondeterminism, op,
		"number %d of step %d was %s and is now %s: the step does not repeat its earlier actions; make it depend only on its input",
		before.Number, step, describeAction(before), describeAction(now)).
		With("number", strconv.Itoa(before.Number)).With("step", strconv.Itoa(step)).
		With("phase", string(before.Phase)).With("tool", before.Tool)
}

// describeAction returns a short description of an entry's action, for error messages.
func describeAction(e execution.Entry) string {
	if e.Tool == "" {
		return "a model call"
	}
	return "a call of tool " + e.Tool + " (" + e.Digest + ")"
}
