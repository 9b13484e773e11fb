package generation

import (
	"context"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/registry"
)

// maxSwaps bounds how often a look begins again because another replica was faster.
const maxSwaps = 8

// tend looks once, and says in the log what kept it from that.
func (g *Guard) tend(ctx context.Context, data Data) {
	look, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	identity, err := data.Identity(look)
	if err != nil {
		return // the store is away; its dependency is watched elsewhere
	}
	settled := g.saw(identity) || g.recall(look, data, identity)
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
		// and the counter of sound data is above it.
		identity, err := data.Identity(ctx)
		if err != nil {
			return err
		}
		settled := g.saw(identity)
		beat, err := data.Beat(ctx, 1)
		if err != nil {
			return err
		}
		next := registry.StoreRecord{Generation: had.Generation, Beat: beat, Identity: identity}
		back := beat <= had.Beat
		if back {
			g.alarm(ctx, had, beat, identity)
			if next.Beat, err = data.Beat(ctx, had.Beat-beat+1); err != nil {
				return err
			}
		}
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
		m := Mark{next.Generation, identity}
		if !settled || back {
			if err := data.Remember(ctx, m); err != nil {
				return err
			}
		}
		g.settle(m)
		return nil
	}
	return nil // others look as well as this one
}

// alarm says that acknowledged writes are lost.
func (g *Guard) alarm(ctx context.Context, had registry.StoreRecord, beat int64, identity string) {
	g.rollbacks.Add(ctx, 1)
	g.cfg.Log.Error("the store went back in time: turns that were acknowledged may be lost; find out which backup or replica it was started from",
		zap.Int64("beat", beat), zap.Int64("beat_before", had.Beat),
		zap.String("identity", identity), zap.String("identity_before", had.Identity))
}

// recall settles what can be settled without the registry: data that have their generation
// keep it. It reports whether they do.
func (g *Guard) recall(ctx context.Context, data Data, identity string) bool {
	m, err := data.Recall(ctx)
	if err != nil || m.Identity != identity {
		return false
	}
	g.settle(m)
	return true
}
