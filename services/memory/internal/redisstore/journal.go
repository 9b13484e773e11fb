package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

//go:embed scripts/journal.lua
var journalSource string

//go:embed scripts/page.lua
var pageSource string

//go:embed scripts/replay.lua
var replaySource string

var (
	journalScript = script(turnSource, journalSource)
	replayScript  = script(turnSource, pageSource, replaySource)
)

// Record implements memory.Journal.
func (s *Store) Record(ctx context.Context, h memory.Hold, step int, entries []execution.Entry) error {
	const op = "memory.Record"
	args := []any{h.Epoch, step, memory.MaxJournalBytes, journalKept.Milliseconds()}
	for _, e := range entries {
		value, err := encoding.Marshal(wire.EntryToProto(e))
		if err != nil {
			return unencodable(op, err)
		}
		args = append(args, field(e), value)
	}
	r, err := s.run(ctx, op, h.Ref, journalScript, keys(h.Ref, h.TurnID, journalOf(h.TurnID, step)), args...)
	if err != nil {
		return err
	}
	switch r.status() {
	case "step_committed":
		return committed(op, h, step)
	case "nondeterminism":
		return nondeterminism(op, step, entries, r)
	case "journal_full":
		return failure.Newf(failure.ResourceQuota, op, "journal: that of step %d of turn %s holds %s bytes, and may hold %d; do less in one step",
			step, h.TurnID, r.text(1), memory.MaxJournalBytes).With("bytes", r.text(1)).With("max_bytes", strconv.Itoa(memory.MaxJournalBytes))
	default:
		return done(op, h, r, nil)
	}
}

// LoadJournal implements memory.Journal.
func (s *Store) LoadJournal(ctx context.Context, h memory.Hold, step, after int) ([]execution.Entry, error) {
	const op = "memory.LoadJournal"
	r, err := s.look(ctx, op, h.Ref, replayScript, keys(h.Ref, h.TurnID, journalOf(h.TurnID, step)),
		h.Epoch, after, memory.MaxWindowBytes)
	if err := done(op, h, r, err); err != nil {
		return nil, err
	}
	return entries(op, r)
}

// entries are those of a reply.
func entries(op string, r reply) ([]execution.Entry, error) {
	var all []execution.Entry
	list := reply(r.list(1))
	for i := range list {
		e, err := entry(list.text(i))
		if err != nil {
			return nil, unreadable(op, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// field is that of an entry in the hash of its journal.
func field(e execution.Entry) string {
	return strconv.Itoa(e.Number) + ":" + string(e.Phase[:1])
}

func entry(stored string) (execution.Entry, error) {
	var e troupev1.JournalEntry
	if err := proto.Unmarshal([]byte(stored), &e); err != nil {
		return execution.Entry{}, fmt.Errorf("entry of a journal: %w", err)
	}
	return wire.EntryFromProto(&e), nil
}

// entriesOf are those in the hash of a journal, by number.
func entriesOf(stored map[string]string) ([]execution.Entry, error) {
	var entries []execution.Entry
	for field, value := range stored {
		if !strings.Contains(field, ":") {
			continue
		}
		e, err := entry(value)
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

// nondeterminism names what the step did before, and what it does now.
func nondeterminism(op string, step int, entries []execution.Entry, r reply) error {
	before, err := entry(r.text(2))
	if err != nil {
		return unreadable(op, err)
	}
	now := entries[slices.IndexFunc(entries, func(e execution.Entry) bool {
		return e.Number == before.Number && e.Phase == before.Phase
	})]
	return failure.Newf(failure.Nondeterminism, op,
		"number %d of step %d was %s and is now %s: the step does not do again what it did; make it depend on its input alone",
		before.Number, step, called(before), called(now)).
		With("number", strconv.Itoa(before.Number)).With("step", strconv.Itoa(step)).
		With("phase", string(before.Phase)).With("tool", before.Tool)
}

// called is what an entry is about.
func called(e execution.Entry) string {
	if e.Tool == "" {
		return "a model call"
	}
	return "a call of tool " + e.Tool + " (" + e.Digest + ")"
}
