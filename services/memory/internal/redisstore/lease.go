package redisstore

import (
	"context"
	_ "embed"
	"time"

	"github.com/troupe-dev/troupe/pkg/memory"
)

//go:embed scripts/renew.lua
var renewSource string

//go:embed scripts/release.lua
var releaseSource string

var (
	renewScript   = script(turnSource, renewSource)
	releaseScript = script(turnSource, releaseSource)
)

// RenewTurn implements memory.Turns.
func (s *Store) RenewTurn(ctx context.Context, h memory.Hold, lease time.Duration) error {
	const op = "memory.RenewTurn"
	r, err := s.run(ctx, op, h.Ref, renewScript, keys(h.Ref, h.TurnID), fence(ctx, h.Epoch), lease.Milliseconds())
	return done(op, h, r, err)
}

// ReleaseTurn implements memory.Turns.
func (s *Store) ReleaseTurn(ctx context.Context, h memory.Hold) error {
	const op = "memory.ReleaseTurn"
	r, err := s.run(ctx, op, h.Ref, releaseScript, keys(h.Ref, h.TurnID), h.Epoch)
	return done(op, h, r, err)
}

// done is the error of a write that has nothing to return.
func done(op string, h memory.Hold, r reply, err error) error {
	if err != nil || r.status() == "ok" {
		return err
	}
	return refused(op, h, r)
}
