package turns

import (
	"context"
	_ "embed"
	"time"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
)

//go:embed scripts/renew.lua
var renewSource string

//go:embed scripts/release.lua
var releaseSource string

var (
	renewScript   = db.Register("renew", db.TurnSource, renewSource)
	releaseScript = db.Register("release", db.TurnSource, releaseSource)
)

// RenewTurn implements memory.Turns.
func (t *Turns) RenewTurn(ctx context.Context, h memory.Lease, lease time.Duration) error {
	const op = "memory.RenewTurn"
	r, err := t.db.RunScript(ctx, op, h.Ref, renewScript, db.TurnKeys(h.Ref, h.TurnID), db.FenceArg(ctx, h.Epoch), lease.Milliseconds())
	return db.CheckWriteReply(op, h, r, err)
}

// ReleaseTurn implements memory.Turns.
func (t *Turns) ReleaseTurn(ctx context.Context, h memory.Lease) error {
	const op = "memory.ReleaseTurn"
	r, err := t.db.RunScript(ctx, op, h.Ref, releaseScript, db.TurnKeys(h.Ref, h.TurnID), h.Epoch)
	return db.CheckWriteReply(op, h, r, err)
}
