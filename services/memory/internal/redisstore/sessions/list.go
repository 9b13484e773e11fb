package sessions

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/erasure"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/index"
)

// ListSessions implements memory.Sessions.
func (s *Sessions) ListSessions(ctx context.Context, l memory.SessionFilter) ([]session.Session, string, error) {
	const op = "memory.ListSessions"
	at, err := index.ParsePageToken(op, l.After)
	if err != nil {
		return nil, "", err
	}
	key := db.IndexKey(l.Tenant, l.User)
	var found []session.Session
	for {
		entries, err := s.index.ListEntries(ctx, op, key, at, l.Limit-len(found)+1)
		if err != nil {
			return nil, "", err
		}
		more := len(entries) > l.Limit-len(found)
		entries = entries[:min(len(entries), l.Limit-len(found))]
		read, err := s.readSessions(ctx, op, l.Tenant, key, entries)
		if err != nil {
			return nil, "", err
		}
		found = append(found, read...)
		switch {
		case !more:
			return found, "", nil
		case len(found) == l.Limit:
			return found, entries[len(entries)-1].PageToken(), nil
		}
		at = entries[len(entries)-1]
	}
}

// readSessions returns the sessions of index entries. It drops entries without a session, and completes
// interrupted deletions.
func (s *Sessions) readSessions(ctx context.Context, op, tenant, key string, entries []index.Entry) ([]session.Session, error) {
	metas, err := s.index.LoadMetas(ctx, op, tenant, entries)
	if err != nil {
		return nil, err
	}
	var found []session.Session
	for i, e := range entries {
		meta := metas[i]
		switch {
		case erasure.IsGone(meta):
			err = s.index.Remove(ctx, op, key, e)
		case erasure.IsUnfinished(meta):
			err = s.eraser.FinishDeletion(ctx, op, session.Ref{Tenant: tenant, Session: e.Session}, meta)
		case db.CheckSession(op, session.Ref{}, meta) == nil:
			var listed session.Session
			if listed, err = sessionFromMeta(e.Session, meta); err != nil {
				err = db.NewUnreadableError(op, err)
			}
			found = append(found, listed)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}
