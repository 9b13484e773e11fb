// Package journal stores the journals of running steps. If the store is configured for it, it keeps them for a
// time after the commit.
package journal

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Journal implements memory.Journal. It is safe for concurrent use.
type Journal struct{ db *db.DB }

// New returns a journal store backed by d.
func New(d *db.DB) *Journal { return &Journal{d} }

// Record implements memory.Journal.
func (j *Journal) Record(_ context.Context, lease memory.Lease, step int, entries []execution.Entry) error {
	const op = "memory.Journal"
	j.db.Lock()
	defer j.db.Unlock()
	_, t, err := j.db.FindTurnByLease(op, lease)
	if err != nil {
		return err
	}
	if t.HasCommitted(step) {
		return db.NewStepCommittedError(op, t, step)
	}
	journal, conflict := mergeEntries(t.Journals[step], entries)
	if conflict > 0 {
		return failure.Newf(failure.Nondeterminism, op,
			"entry %d of step %d differs from the entry of an earlier attempt; make the step depend only on its input", conflict, step).
			With("step", strconv.Itoa(step)).With("number", strconv.Itoa(conflict))
	}
	bytes := 0
	for _, e := range journal {
		bytes += entrySize(e)
	}
	if bytes > memory.MaxJournalBytes {
		return failure.Newf(failure.ResourceQuota, op, "the journal of step %d would hold %d bytes, and may hold %d; do less in one step",
			step, bytes, memory.MaxJournalBytes).With("step", strconv.Itoa(step))
	}
	t.Journals[step] = journal
	return nil
}

// LoadJournal implements memory.Journal.
func (j *Journal) LoadJournal(_ context.Context, lease memory.Lease, step, after int) ([]execution.Entry, error) {
	j.db.Lock()
	defer j.db.Unlock()
	_, t, err := j.db.FindTurnByLease("memory.LoadJournal", lease)
	if err != nil {
		return nil, err
	}
	return nextPage(t.Journals[step], after), nil
}

// Recording implements memory.Journal.
func (j *Journal) Recording(_ context.Context, ref session.Ref, turnID string, step, from int) ([]execution.Entry, error) {
	const op = "memory.Recording"
	j.db.Lock()
	defer j.db.Unlock()
	c, err := j.db.GetSession(op, ref)
	if err != nil {
		return nil, err
	}
	t := j.db.FindTurn(c, turnID)
	if t == nil {
		return nil, db.NewTurnNotFoundError(op, ref, turnID)
	}
	recording := t.Recordings[step]
	if j.db.HasElapsed(recording.RecordedAt, j.db.KeepJournals) {
		return nil, nil
	}
	return nextPage(recording.Entries, from-1), nil
}

// LoadRounds implements memory.Journal.
func (j *Journal) LoadRounds(_ context.Context, ref session.Ref, agent string, from int64, before *conversation.Rounds) ([]conversation.Rounds, error) {
	j.db.Lock()
	defer j.db.Unlock()
	c, err := j.db.GetSession("memory.LoadRounds", ref)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(slices.Clone(c.Rounds[agent]), func(r conversation.Rounds) bool {
		return r.After < from || before != nil && r.Compare(*before) >= 0
	})
	slices.SortStableFunc(all, conversation.Rounds.Compare)
	bytes := 0
	for i, r := range slices.Backward(all) { // the latest that fit
		if bytes += r.Size(); bytes > memory.MaxWindowBytes {
			return all[i+1:], nil
		}
	}
	return all, nil
}

// KeepRecording keeps the journal of a finished step, including the entries that arrived with its commit. It does
// nothing if the store keeps no journals. The caller holds the lock.
func (j *Journal) KeepRecording(t *db.Turn, step int, last []execution.Entry) {
	if j.db.KeepJournals == 0 {
		return
	}
	journal, _ := mergeEntries(t.Journals[step], last)
	if t.Recordings == nil {
		t.Recordings = map[int]db.Recording{}
	}
	t.Recordings[step] = db.Recording{Entries: journal, RecordedAt: j.db.Now()}
}

// mergeEntries returns a journal with the entries added. If an entry differs from a stored one, it stops there and
// returns its number (0 means none). Entry 0 is the step's input. It is replaced, because each attempt has its own
// input.
func mergeEntries(stored, entries []execution.Entry) (journal []execution.Entry, conflict int) {
	journal = slices.Clone(stored)
	for _, e := range entries {
		i, known := slices.BinarySearchFunc(journal, e, compareEntries)
		switch {
		case !known:
			journal = slices.Insert(journal, i, e)
		case e.Number == 0:
			journal[i] = e
		case !reflect.DeepEqual(journal[i], e):
			return journal, e.Number
		}
	}
	return journal, 0
}

// compareEntries orders entries by number, and intents before results.
func compareEntries(a, b execution.Entry) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), -cmp.Compare(a.Phase, b.Phase))
}

// nextPage returns the entries whose numbers are greater than after, as many as fit into one answer. It never
// splits the entries of one number.
func nextPage(journal []execution.Entry, after int) []execution.Entry {
	var page []execution.Entry
	bytes := 0
	for _, e := range journal {
		if e.Number <= after {
			continue
		}
		bytes += entrySize(e)
		if bytes > memory.MaxWindowBytes && len(page) > 0 {
			first := slices.IndexFunc(page, func(p execution.Entry) bool { return p.Number == e.Number })
			if first < 0 {
				break
			}
			if first > 0 { // the next page begins with the first entry of this number
				page = page[:first]
				break
			}
		}
		page = append(page, e)
	}
	return page
}

func entrySize(e execution.Entry) int {
	return len(e.Text) + conversation.Size(e.Reply) + len(e.Digest) + len(e.Tool) + len(e.Arguments) + len(e.StepInput)
}
