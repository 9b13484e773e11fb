package inmem

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Record implements memory.Journal.
func (s *Store) Record(_ context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	const op = "memory.Journal"
	s.mu.Lock()
	defer s.mu.Unlock()
	_, t, err := s.held(op, h)
	if err != nil {
		return err
	}
	if t.committed(step) {
		return stepCommitted(op, t, step)
	}
	journal, differs := merged(t.journals[step], entries)
	if differs > 0 {
		return failure.Newf(failure.Nondeterminism, op, "entry %d of step %d differs from what an attempt before did; a step must do the same again", differs, step).
			With("step", strconv.Itoa(step)).With("number", strconv.Itoa(differs))
	}
	bytes := 0
	for _, e := range journal {
		bytes += entrySize(e)
	}
	if bytes > memory.MaxJournalBytes {
		return failure.Newf(failure.ResourceQuota, op, "the journal of step %d would hold %d bytes; at most %d are kept", step, bytes, memory.MaxJournalBytes).
			With("step", strconv.Itoa(step))
	}
	t.journals[step] = journal
	return nil
}

// LoadJournal implements memory.Journal.
func (s *Store) LoadJournal(_ context.Context, h memory.Lease, step, after int) ([]execution.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, t, err := s.held("memory.LoadJournal", h)
	if err != nil {
		return nil, err
	}
	return page(t.journals[step], after), nil
}

// merged is a journal with more entries, and the number of the first that is another there; 0:
// none is. What a step is given it is given anew.
func merged(stored, entries []execution.Entry) (journal []execution.Entry, differs int) {
	journal = slices.Clone(stored)
	for _, e := range entries {
		at, known := slices.BinarySearchFunc(journal, e, inOrder)
		switch {
		case !known:
			journal = slices.Insert(journal, at, e)
		case e.Number == 0:
			journal[at] = e
		case !reflect.DeepEqual(journal[at], e):
			return journal, e.Number
		}
	}
	return journal, 0
}

// page is what one answer holds of the entries above a number.
func page(journal []execution.Entry, after int) []execution.Entry {
	var page []execution.Entry
	bytes := 0
	for _, e := range journal {
		if e.Number <= after {
			continue
		}
		bytes += entrySize(e)
		if bytes > memory.MaxWindowBytes && len(page) > 0 {
			// The entries of a number come together, so the page ends before this one.
			whole := slices.IndexFunc(page, func(p execution.Entry) bool { return p.Number == e.Number })
			if whole < 0 {
				break
			}
			if whole > 0 {
				page = page[:whole]
				break
			}
		}
		page = append(page, e)
	}
	return page
}

// recorded is the journal of a step that is over.
type recorded struct {
	entries []execution.Entry
	since   time.Time
}

// keep keeps the journal of a step that is over, if that is wanted.
func (s *Store) keep(t *turn, step int, left []execution.Entry) {
	if s.cfg.KeepJournals == 0 {
		return
	}
	journal, _ := merged(t.journals[step], left)
	if t.recorded == nil {
		t.recorded = map[int]recorded{}
	}
	t.recorded[step] = recorded{journal, s.now()}
}

// Recording implements memory.Journal.
func (s *Store) Recording(_ context.Context, ref session.Ref, turnID string, step, from int) ([]execution.Entry, error) {
	const op = "memory.Recording"
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.get(op, ref)
	if err != nil {
		return nil, err
	}
	t := s.turn(c, turnID)
	if t == nil {
		return nil, unknownTurn(op, ref, turnID)
	}
	journal := t.recorded[step]
	if s.past(journal.since, s.cfg.KeepJournals) {
		return nil, nil
	}
	return page(journal.entries, from-1), nil
}

// inOrder sorts by number, intents before results.
func inOrder(a, b execution.Entry) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), -cmp.Compare(a.Phase, b.Phase))
}

func entrySize(e execution.Entry) int {
	return len(e.Text) + conversation.Size(e.Reply) + len(e.Digest) + len(e.Tool) + len(e.Arguments) + len(e.Given)
}
