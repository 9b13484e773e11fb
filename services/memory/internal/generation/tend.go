package generation

import (
	"context"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// maxSwaps bounds how often a look begins again because another replica was faster.
const maxSwaps = 8

// tend looks once, and says in the log what kept it from that.
func (g *Guard) tend(ctx context.Context, data Data) {
	look, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	strangers := g.met()
	id, err := data.Identity(look)
	if err != nil { // the store is away, which is watched elsewhere, or does not say
		blind := failure.ModeOf(err) == failure.Unknown
		if blind && !g.blind {
			g.cfg.Log.Error("the store does not say who it is, and begins no turns: let the service use INFO", zap.Error(err))
		}
		g.blind = blind
		return
	}
	g.blind = false
	identity := id.String()
	settled := g.saw(identity, strangers) || g.recall(look, data, identity, strangers)
	err = g.agree(look, data)
	if ctx.Err() != nil {
		return
	}
	if err == nil && g.deserted {
		g.cfg.Log.Info("the generation of the store is agreed again")
	}
	if err != nil && !g.deserted {
		g.cfg.Log.Warn("the generation of the store cannot be agreed with the registry", zap.Bool("begins_turns", settled), zap.Error(err))
	}
	g.deserted = err != nil
}

// agree brings the record up to date with the data: other data, or data that went back in
// time, are a generation of their own.
func (g *Guard) agree(ctx context.Context, data Data) error {
	for range maxSwaps {
		had, revision, err := g.cfg.Records.Load(ctx, g.cfg.Name)
		if err != nil {
			return err
		}
		if revision == 0 { // a registry that is new, or was lost
			m, err := data.Recall(ctx)
			if err != nil {
				return err
			}
			had.Generation, had.Identity = m.Generation, m.Identity
		}
		// Asked after the record was read: the identity is not older than that of the record,
		// and the counters of sound data are above it.
		strangers := g.met()
		id, err := data.Identity(ctx)
		if err != nil {
			return err
		}
		identity := id.String()
		settled := g.saw(identity, strangers)
		beats, err := g.beat(ctx, data, id, had)
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
		if next.Generation != had.Generation {
			g.cfg.Log.Info("the store has a new generation", zap.Int64("generation", next.Generation),
				zap.String("identity", identity), zap.String("before", had.Identity))
		}
		if back {
			g.alarm(ctx, had, next)
			if err := level(ctx, data, beats); err != nil {
				return err
			}
		}
		m := Mark{next.Generation, identity}
		if !settled || back {
			if err := data.Remember(ctx, m); err != nil {
				return err
			}
		}
		g.settle(m, strangers)
		return nil
	}
	return nil // others look as well as this one
}

// beat counts on in each share. One that the record does not know begins where the others
// are; that one which it knows is below it is for the caller.
func (g *Guard) beat(ctx context.Context, data Data, id Identity, had registry.StoreRecord) (map[string]int64, error) {
	beats, before := map[string]int64{}, identified(had.Identity)
	for share := range id {
		beat, err := data.Beat(ctx, share, 1)
		if _, known := before[share]; err == nil && !known && beat <= had.Beat {
			beat, err = data.Beat(ctx, share, had.Beat+1-beat)
		}
		if err != nil {
			return nil, err
		}
		beats[share] = beat
	}
	return beats, nil
}

// level brings the counters that fell behind to where the others are.
func level(ctx context.Context, data Data, beats map[string]int64) error {
	most := slices.Max(slices.Collect(maps.Values(beats)))
	for share, beat := range beats {
		if beat == most {
			continue
		}
		if _, err := data.Beat(ctx, share, most-beat); err != nil {
			return err
		}
	}
	return nil
}

// alarm says that acknowledged writes are lost.
func (g *Guard) alarm(ctx context.Context, had, now registry.StoreRecord) {
	g.rollbacks.Add(ctx, 1)
	g.cfg.Log.Error("the store went back in time: turns that were acknowledged may be lost; find out which backup or replica it was started from",
		zap.Int64("beat", now.Beat), zap.Int64("beat_before", had.Beat),
		zap.String("identity", now.Identity), zap.String("identity_before", had.Identity))
}

// recall settles what can be settled without the registry: data that have their generation
// keep it. It reports whether they do.
func (g *Guard) recall(ctx context.Context, data Data, identity string, strangers int64) bool {
	m, err := data.Recall(ctx)
	if err != nil || m.Identity != identity {
		return false
	}
	g.settle(m, strangers)
	return true
}
