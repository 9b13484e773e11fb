package generation

import (
	"context"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// maxSwapAttempts bounds how often a check starts again because another replica updated the record first.
const maxSwapAttempts = 8

// checkStore checks the store once. It logs an error that prevents the check.
func (g *Guard) checkStore(ctx context.Context, data GuardedStore) {
	within, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	unknownCount := g.loadUnknownCount()
	id, err := data.Identity(within)
	if err != nil { // the store is unreachable, which the readiness probe reports, or does not identify itself
		anonymous := failure.ModeOf(err) == failure.Unknown
		if anonymous && !g.isIdentityMissing {
			g.cfg.Log.Error("the store does not identify itself, so no turn can begin: permit the service to use INFO", zap.Error(err))
		}
		g.isIdentityMissing = anonymous
		return
	}
	g.isIdentityMissing = false
	identity := id.String()
	settled := g.verifyIdentity(identity, unknownCount) || g.setGenerationFromMark(within, data, identity, unknownCount)
	err = g.reconcileWithRegistry(within, data)
	if ctx.Err() != nil {
		return
	}
	if err == nil && g.isRegistryUnreachable {
		g.cfg.Log.Info("the generation of the store is agreed with the registry again")
	}
	if err != nil && !g.isRegistryUnreachable {
		g.cfg.Log.Warn("the generation of the store cannot be agreed with the registry", zap.Bool("begins_turns", settled), zap.Error(err))
	}
	g.isRegistryUnreachable = err != nil
}

// reconcileWithRegistry updates the record in the registry. Data that were replaced, or that lost writes, get a
// new generation.
func (g *Guard) reconcileWithRegistry(ctx context.Context, data GuardedStore) error {
	for range maxSwapAttempts {
		had, revision, err := g.loadRecord(ctx, data)
		if err != nil {
			return err
		}
		// The identity and the counters are read after the record, so they are at least as new as the record.
		// Counters above the record's counter prove that no write was lost.
		unknownCount := g.loadUnknownCount()
		id, err := data.Identity(ctx)
		if err != nil {
			return err
		}
		identity := id.String()
		settled := g.verifyIdentity(identity, unknownCount)
		beats, err := g.incrementCounters(ctx, data, id, had)
		if err != nil {
			return err
		}
		next := registry.StoreRecord{Generation: had.Generation, Beat: slices.Min(slices.Collect(maps.Values(beats))), Identity: identity}
		back := next.Beat <= had.Beat
		if back || had.Identity != "" && had.Identity != identity {
			next.Generation++
		}
		swapped, err := g.cfg.Records.Swap(ctx, g.cfg.Name, next, revision)
		if err != nil {
			return err
		}
		if !swapped {
			continue
		}
		g.logNewGeneration(had, next)
		if back {
			g.logDataLoss(ctx, had, next)
			if err := equalizeCounters(ctx, data, beats); err != nil {
				return err
			}
		}
		m := Mark{next.Generation, identity}
		if !settled || back {
			if err := data.StoreMark(ctx, m); err != nil {
				return err
			}
		}
		g.setGeneration(m, unknownCount)
		return nil
	}
	return nil // the other replicas do the same checks
}

// loadRecord returns the record in the registry and its revision. If the registry has none, because it is new or was
// lost, the record has what the mark in the data says.
func (g *Guard) loadRecord(ctx context.Context, data GuardedStore) (registry.StoreRecord, int64, error) {
	had, revision, err := g.cfg.Records.Load(ctx, g.cfg.Name)
	if err != nil || revision != 0 {
		return had, revision, err
	}
	m, err := data.LoadMark(ctx)
	had.Generation, had.Identity = m.Generation, m.Identity
	return had, 0, err
}

func (g *Guard) logNewGeneration(had, next registry.StoreRecord) {
	if next.Generation != had.Generation {
		g.cfg.Log.Info("the store has a new generation", zap.Int64("generation", next.Generation),
			zap.String("identity", next.Identity), zap.String("before", had.Identity))
	}
}

// incrementCounters increments the counter of each shard. A shard that is not in the record starts above the
// counter in the record. The caller handles a known shard whose counter is not above the record's.
func (g *Guard) incrementCounters(ctx context.Context, data GuardedStore, id Identity, had registry.StoreRecord) (map[string]int64, error) {
	beats, before := map[string]int64{}, parseIdentity(had.Identity)
	for shard := range id {
		beat, err := data.Increment(ctx, shard, 1)
		if _, known := before[shard]; err == nil && !known && beat <= had.Beat {
			beat, err = data.Increment(ctx, shard, had.Beat+1-beat)
		}
		if err != nil {
			return nil, err
		}
		beats[shard] = beat
	}
	return beats, nil
}

// equalizeCounters raises every counter to the highest one.
func equalizeCounters(ctx context.Context, data GuardedStore, beats map[string]int64) error {
	most := slices.Max(slices.Collect(maps.Values(beats)))
	for shard, beat := range beats {
		if beat == most {
			continue
		}
		if _, err := data.Increment(ctx, shard, most-beat); err != nil {
			return err
		}
	}
	return nil
}

// logDataLoss logs that acknowledged writes may be lost, and counts it in a metric.
func (g *Guard) logDataLoss(ctx context.Context, had, now registry.StoreRecord) {
	g.rollbacks.Add(ctx, 1)
	g.cfg.Log.Error("the store went back in time: acknowledged turns may be lost; find out from which backup or replica it was started",
		zap.Int64("beat", now.Beat), zap.Int64("beat_before", had.Beat),
		zap.String("identity", now.Identity), zap.String("identity_before", had.Identity))
}

// setGenerationFromMark sets the generation from the mark that is stored with the data, for when the registry is
// unreachable. It reports whether there is a mark for the current identity.
func (g *Guard) setGenerationFromMark(ctx context.Context, data GuardedStore, identity string, unknownCount int64) bool {
	m, err := data.LoadMark(ctx)
	if err != nil || m.Identity != identity {
		return false
	}
	g.setGeneration(m, unknownCount)
	return true
}
