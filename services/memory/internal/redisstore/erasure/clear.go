package erasure

import (
	"context"
	_ "embed"
	"slices"

	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
)

//go:embed scripts/clear.lua
var clearSource string

var clearScript = db.Register("clear", clearSource)

// ClearSession implements memory.Sessions.
func (e *Eraser) ClearSession(ctx context.Context, ref session.Ref) error {
	const op = "memory.ClearSession"
	at := db.SessionLocation(ref)
	for range db.MaxAttempts {
		// Changes that the session has committed to shared scopes are applied first, because clearing the session
		// must not drop them.
		if err := e.outbox.Drain(ctx, ref); err != nil {
			return err
		}
		meta, err := e.db.ReadMeta(ctx, op, ref)
		if err != nil {
			return err
		}
		stored, err := e.artifacts.ListSessionArtifacts(ctx, op, ref)
		if err != nil {
			return err
		}
		journals, err := e.journal.KeptJournalKeys(ctx, op, ref)
		if err != nil {
			return err
		}
		rounds, err := e.journal.RoundKeys(ctx, op, ref, journal.ParseAgents(meta["agents"]))
		if err != nil {
			return err
		}
		journals = append(journals, rounds...)
		keys := append([]string{at("meta"), at("out"), at("state"), at("log"), at("arts")}, journals...)
		for _, name := range db.WaitingJournalNames(meta["waiting"]) {
			keys = append(keys, at(name))
		}
		r, err := e.db.RunScript(ctx, op, ref, clearScript, slices.Concat(keys, contents.ArtifactContentKeys(at, stored)), meta["epoch"], meta["waiting"])
		if err != nil {
			return err
		}
		switch r.Status() {
		case "ok":
			return nil
		case "changed":
		default:
			return db.SessionErrorFromReply(op, ref, r)
		}
	}
	return db.NewTooManyChangesError(op, ref)
}
