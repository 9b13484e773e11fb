package inmem

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
)

// Record implements memory.Journal.
func (s *Store) Record(_ context.Context, h memory.Hold, step int, entries []execution.Entry) error {
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
	journal := slices.Clone(t.journals[step])
	for _, e := range entries {
		at, stored := slices.BinarySearchFunc(journal, e, inOrder)
		switch {
		case !stored:
			journal = slices.Insert(journal, at, e)
		case !reflect.DeepEqual(journal[at], e):
			return failure.Newf(failure.Nondeterminism, op, "entry %d of step %d differs from what an attempt before did; a step must do the same again", e.Number, step).
				With("step", strconv.Itoa(step)).With("number", strconv.Itoa(e.Number))
		}
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
func (s *Store) LoadJournal(_ context.Context, h memory.Hold, step, after int) ([]execution.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, t, err := s.held("memory.LoadJournal", h)
	if err != nil {
		return nil, err
	}
	var page []execution.Entry
	bytes := 0
	for _, e := range t.journals[step] {
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
	return page, nil
}

// inOrder sorts by number, intents before results.
func inOrder(a, b execution.Entry) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), -cmp.Compare(a.Phase, b.Phase))
}

func entrySize(e execution.Entry) int {
	return len(e.Text) + conversation.Size(e.Reply) + len(e.Digest) + len(e.Tool)
}
