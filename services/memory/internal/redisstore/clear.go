package redisstore

import (
	"context"
	_ "embed"
	"slices"

	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/clear.lua
var clearSource string

var clearScript = script(clearSource)

// ClearSession implements memory.Sessions.
func (s *Store) ClearSession(ctx context.Context, ref session.Ref) error {
	const op = "memory.ClearSession"
	for range maxRounds {
		// What was committed for other scopes is not the session's to clear.
		if err := s.settle(ctx, ref); err != nil {
			return err
		}
		meta, err := s.meta(ctx, op, ref)
		if err != nil {
			return err
		}
		stored, _, err := s.artifacts(ctx, op, ref)
		if err != nil {
			return err
		}
		journals, err := s.keptJournals(ctx, op, ref)
		if err != nil {
			return err
		}
		keys := append([]string{key(ref, "meta"), key(ref, "out"), key(ref, "state"), key(ref, "log"), key(ref, "arts")}, journals...)
		if waits := meta["waiting"]; waits != "" {
			keys = append(keys, key(ref, journalOfWaiting(waits)))
		}
		r, err := s.run(ctx, op, ref, clearScript, slices.Concat(keys, contentsOf(ref, stored)), meta["epoch"], meta["waiting"])
		if err != nil {
			return err
		}
		switch r.status() {
		case "ok":
			return nil
		case "changed":
		default:
			return refusedFor(op, ref, r)
		}
	}
	return unsettled(op, ref)
}
