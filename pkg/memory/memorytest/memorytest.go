// Package memorytest is the test suite for implementations of memory.Store.
//
// The author of a store calls Run from a test, and RunKeepJournals if the store can keep journals after the
// commit. Compare makes the same random calls to the store and to a reference store, usually inmem.
package memorytest

import (
	"context"
	"testing"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/artifacts"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/continuation"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/differential"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/erasure"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/journal"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/sessions"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/state"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/turns"
)

// Settings that the stores under test must have.
const (
	// MaxMessages and MaxBytes limit a session. They are small, so that tests fill a session quickly.
	MaxMessages = fixture.MaxMessages
	MaxBytes    = fixture.MaxBytes
	// KeepJournals is how long the stores of RunKeepJournals keep a journal after the commit.
	KeepJournals = fixture.KeepJournals
)

// Run runs the suite. open must return a store that is limited to MaxMessages and MaxBytes, and is called once per
// test. It may return the same store each time, because each test uses its own sessions. The tests run in
// parallel.
func Run(t *testing.T, open func(t *testing.T) memory.Store) {
	for _, tests := range []fixture.Tests{
		turns.Tests(), continuation.Tests(), journal.Tests(), sessions.Tests(), state.Tests(), artifacts.Tests(), erasure.Tests(),
	} {
		tests.Run(t, open)
	}
}

// RunKeepJournals runs the tests of stores that keep each journal for KeepJournals after the commit of its step.
func RunKeepJournals(t *testing.T, open func(t *testing.T) memory.Store) {
	journal.RecordingTests().Run(t, open)
}

// ReplyCounts counts the replies to the calls of Compare, by method and result.
type ReplyCounts = differential.ReplyCounts

// Compare makes the same random calls to two stores and fails the test at the first reply that differs. It returns
// how often each reply occurred. See FirstDifference.
func Compare(t *testing.T, oracle, other memory.Store, calls int, seed uint64) ReplyCounts {
	t.Helper()
	t.Logf("Compare: %d calls with seed %d", calls, seed)
	replies, err := FirstDifference(t.Context(), oracle, other, calls, seed)
	if err != nil {
		t.Fatal(err)
	}
	return replies
}

// FirstDifference makes the same random calls to two stores. It returns the first difference between their replies
// as an error, with the calls that led to it (nil if there is none). The seed determines every call. At the end it
// compares all data of the sessions.
//
// Both stores must have the limits of this package and generation 0. The oracle must be empty, and the other store
// must hold no data of an earlier run with the same seed. Times and error texts are not compared. No lease expires
// by itself: the calls end leases with ReleaseTurn.
func FirstDifference(ctx context.Context, oracle, other memory.Store, calls int, seed uint64) (ReplyCounts, error) {
	return differential.Run(ctx, oracle, other, calls, seed)
}
