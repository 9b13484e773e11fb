// Package inmem implements memory.Store in RAM, for tests and for sessions within one process. Other stores are
// compared with it, so it is simple rather than fast. It loses all data when its process ends.
//
// Its subpackages implement the parts of the contract, and this package combines them. They share one lock, which
// makes each operation atomic.
package inmem

import (
	"cmp"
	"time"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/artifacts"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/configs"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/erasure"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/journal"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/sessions"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/state"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/turns"
	"github.com/troupe-dev/troupe/pkg/session"
)

var _ memory.Store = (*Store)(nil)

// generationBits is the number of low bits of an epoch that count turns. The bits above hold the generation of the
// data.
const generationBits = 32

// Config holds the clock and the limits of a store.
type Config struct {
	// Clock returns the time for leases and retention (nil means time.Now).
	Clock func() time.Time
	// MaxMessages and MaxBytes limit a session (0 means session.MaxMessages and session.MaxBytes).
	MaxMessages, MaxBytes int64
	// Generation is the generation of the data. Epochs are at least Generation · 2³².
	Generation int64
	// KeepJournals is how long the journal of a step is kept after its commit, for Recording (0 means that it is
	// deleted).
	KeepJournals time.Duration
}

// Store is the MEMORY tier in RAM. Create it with New. It expects input within the limits of package memory, which
// the RPC server checks. It is safe for concurrent use.
type Store struct {
	memory.Turns
	memory.Journal
	memory.Sessions
	memory.State
	memory.Artifacts
	memory.Configs

	db *db.DB
}

// New returns an empty store.
func New(cfg Config) *Store {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	d := db.New(db.Config{
		Clock:        cfg.Clock,
		MaxMessages:  cmp.Or(cfg.MaxMessages, session.MaxMessages),
		MaxBytes:     cmp.Or(cfg.MaxBytes, session.MaxBytes),
		LeastEpoch:   leastEpoch(cfg.Generation),
		KeepJournals: cfg.KeepJournals,
	})
	j, a := journal.New(d), artifacts.New(d)
	return &Store{
		Turns:   turns.New(d, j, a),
		Journal: j,
		Sessions: struct {
			*sessions.Sessions
			*erasure.Eraser
		}{sessions.New(d), erasure.New(d)},
		State:     state.New(d),
		Artifacts: a,
		Configs:   configs.New(d),
		db:        d,
	}
}

// leastEpoch returns the least epoch of a generation.
func leastEpoch(generation int64) int64 { return generation << generationBits }

// StartGeneration begins a later generation of the data: from now on, epochs are at least generation · 2³². It is
// called when the data may have gone back in time.
func (s *Store) StartGeneration(generation int64) {
	s.db.Lock()
	defer s.db.Unlock()
	s.db.LeastEpoch = leastEpoch(generation)
}
