package hookstore

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/statechange"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// maxConflicts is how often a commit is repeated because other sessions have changed its keys. Each time means that
// another session made progress, so there is no pause.
const maxConflicts = 200

// Rebase makes the changes of a turn to other values of the keys that sessions share, as event.TurnResult.Rebase does.
type Rebase = func(values map[string]json.RawMessage, revisions map[string]int64) (state map[string]json.RawMessage, overwritten []string, _ error)

// Committer is the part of the MEMORY tier that commits a step.
type Committer interface {
	CommitStep(ctx context.Context, c memory.Commit) (last int64, err error)
	memory.State
}

// CommitStep commits a step. If another session has changed a key since the turn read it, CommitStep reads the state,
// changes the commit with rebase, and commits again. It tells overwrite about changes of others that are lost. After
// transient failures it retries. It returns the sequence of the session's last message and the state as stored.
//
// Modes: those of memory.CommitStep and memory.GetState; those of rebase; revision_mismatch if other sessions have
// changed the keys too often.
func CommitStep(ctx context.Context, tier Committer, c memory.Commit, rebase Rebase, overwrite func(event.Warning)) (
	last int64, state map[string]json.RawMessage, _ error,
) {
	for conflicts := 0; ; conflicts++ {
		if !needsRebase(c) {
			last, err := retry.Do(ctx, func(ctx context.Context) (int64, error) { return tier.CommitStep(ctx, c) })
			if rebase == nil || !failure.Is(err, failure.RevisionMismatch) || conflicts == maxConflicts {
				return last, c.State, err
			}
		}
		s, err := retry.Do(ctx, func(ctx context.Context) (memory.Snapshot, error) { return tier.GetState(ctx, c.Ref) })
		if err != nil {
			return 0, nil, err
		}
		changed, overwritten, err := rebase(s.Values, s.Keys)
		if err != nil {
			return 0, nil, err
		}
		if len(overwritten) > 0 {
			overwrite(event.Warning{Reason: statechange.ReasonOverwritten, Message: "another session changed " + strings.Join(overwritten, ", ") +
				" after this turn had read the state, and this turn has overwritten the change; update the keys to keep both"})
		}
		c.State, c.Expected = maps.Clone(c.State), maps.Clone(c.Expected)
		maps.Copy(c.State, changed)
		for key := range c.Expected {
			c.Expected[key] = s.Keys[key]
		}
	}
}

// needsRebase reports whether the commit changes a key whose revision is not known.
func needsRebase(c memory.Commit) bool {
	return slices.Contains(slices.Collect(maps.Values(c.Expected)), statechange.Unread)
}
