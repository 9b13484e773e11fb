// Package erasure clears, deletes and expires sessions, and erases users. A removal may be interrupted at any
// point. The next call completes it.
package erasure

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/artifacts"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/index"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/outbox"
)

// Eraser implements the methods of memory.Sessions that remove data. It is safe for concurrent use.
type Eraser struct {
	db        *db.DB
	index     *index.Index
	outbox    *outbox.Outbox
	journal   *journal.Journal
	artifacts *artifacts.Artifacts
}

// New returns an Eraser for the sessions in d.
func New(d *db.DB, x *index.Index, o *outbox.Outbox, j *journal.Journal, a *artifacts.Artifacts) *Eraser {
	return &Eraser{d, x, o, j, a}
}

// IsUnfinished reports whether a meta hash is the tombstone of a session that still has data to remove.
func IsUnfinished(meta map[string]string) bool {
	_, left := meta["user"]
	return meta["deleted"] != "" && left
}

// IsGone reports whether only the tombstone is left of the session with this meta hash.
func IsGone(meta map[string]string) bool { return meta["schema"] == "" && !IsUnfinished(meta) }

// FinishDeletion removes all remaining data of a deleted session except its tombstone. The list of keys that it
// reads is complete, because the tombstone rejects writes to the session. It can be repeated after an
// interruption, because it updates the tombstone and the index last. The caller passes the tombstone.
func (e *Eraser) FinishDeletion(ctx context.Context, op string, ref session.Ref, tombstone map[string]string) error {
	if err := e.outbox.Drain(ctx, ref); err != nil {
		return err
	}
	if err := e.removeRounds(ctx, op, ref, journal.ParseAgents(tombstone["agents"])); err != nil {
		return err
	}
	if err := e.removeTurns(ctx, op, ref); err != nil {
		return err
	}
	if err := e.removeArtifacts(ctx, op, ref); err != nil {
		return err
	}
	if user := tombstone["user"]; user != "" {
		if err := e.db.ZRem(ctx, db.IndexKey(ref.Tenant, user), ref.Session).Err(); err != nil {
			return e.db.Failure(op, err)
		}
	}
	_, err := e.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.PExpire(ctx, db.Key(ref, "meta"), memory.Retention)
		p.HDel(ctx, db.Key(ref, "meta"), "user", "agents")
		return nil
	})
	if err != nil {
		return e.db.Failure(op, err)
	}
	if err := e.db.ZRem(ctx, db.IndexKey(ref.Tenant, ""), ref.Session).Err(); err != nil {
		return e.db.Failure(op, err)
	}
	return nil
}

// removeRounds removes the histories of agents.
func (e *Eraser) removeRounds(ctx context.Context, op string, ref session.Ref, agents []string) error {
	keys, err := e.journal.RoundKeys(ctx, op, ref, agents)
	if err != nil || len(keys) == 0 {
		return err
	}
	_, err = e.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		for batch := range slices.Chunk(keys, journal.BatchSize) {
			p.Unlink(ctx, batch...)
		}
		return nil
	})
	if err != nil {
		return e.db.Failure(op, err)
	}
	return nil
}

// removeTurns removes the turns of a session and their journals, in batches.
func (e *Eraser) removeTurns(ctx context.Context, op string, ref session.Ref) error {
	turns := db.Key(ref, "turns")
	for {
		batch, err := e.db.ZRevRangeByScore(ctx, turns, &redis.ZRangeBy{Min: "-inf", Max: "+inf", Count: journal.BatchSize}).Result()
		if err != nil {
			return e.db.Failure(op, err)
		}
		if len(batch) == 0 {
			return nil
		}
		keys, err := e.journal.JournalKeys(ctx, op, ref, batch)
		if err != nil {
			return err
		}
		ids := make([]any, len(batch))
		for i, id := range batch {
			keys, ids[i] = append(keys, db.Key(ref, "turn:"+id)), id
		}
		_, err = e.db.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Unlink(ctx, keys...)
			p.ZRem(ctx, turns, ids...)
			return nil
		})
		if err != nil {
			return e.db.Failure(op, err)
		}
		if len(batch) < journal.BatchSize {
			return nil
		}
	}
}

// removeArtifacts removes the artifacts and the staged content of a session. It removes the keys that list them
// last.
func (e *Eraser) removeArtifacts(ctx context.Context, op string, ref session.Ref) error {
	stored, err := e.artifacts.ListSessionArtifacts(ctx, op, ref)
	if err != nil {
		return err
	}
	at := db.SessionLocation(ref)
	staged, err := e.stagedContents(ctx, op, at)
	if err != nil {
		return err
	}
	for _, c := range staged {
		stored = append(stored, memory.Artifact{Content: c})
	}
	_, err = e.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		for batch := range slices.Chunk(contents.ArtifactContentKeys(at, stored), journal.BatchSize) {
			p.Unlink(ctx, batch...)
		}
		p.Unlink(ctx, at("arts"), at("staged"))
		return nil
	})
	if err != nil {
		return e.db.Failure(op, err)
	}
	return nil
}

// stagedContents returns the staged contents at a location, which no version uses yet.
func (e *Eraser) stagedContents(ctx context.Context, op string, at db.Location) ([]memory.Content, error) {
	names, err := e.db.ZRevRangeByScore(ctx, at("staged"), &redis.ZRangeBy{Min: "-inf", Max: "+inf"}).Result()
	if err != nil {
		return nil, e.db.Failure(op, err)
	}
	staged := make([]memory.Content, len(names))
	for i, name := range names {
		staged[i] = contents.ParseStagedName(name)
	}
	return staged, nil
}
