package redisstore

import (
	"context"
	_ "embed"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/update.lua
var updateSource string

var updateScript = script(updateSource)

// label is the beginning of the fields of metadata.
const label = "md:"

// GetSession implements memory.Sessions.
func (s *Store) GetSession(ctx context.Context, ref session.Ref) (session.Session, error) {
	meta, err := s.meta(ctx, "memory.GetSession", ref)
	if err != nil {
		return session.Session{}, err
	}
	return s.waiting(ctx, "memory.GetSession", ref, known(ref.Session, meta), meta["waiting"])
}

// meta reads what is known of a session.
func (s *Store) meta(ctx context.Context, op string, ref session.Ref) (map[string]string, error) {
	meta, err := s.redis.HGetAll(ctx, key(ref, "meta")).Result()
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	return meta, readable(ctx, op, ref, meta)
}

// readable is usable for who may read only while a turn is open under his epoch.
func readable(ctx context.Context, op string, ref session.Ref, meta map[string]string) error {
	h, err := memory.HolderOf(ctx), usable(op, ref, meta)
	switch {
	case err != nil || h.Epoch == 0:
		return err
	case meta["epoch"] != strconv.FormatInt(h.Epoch, 10):
		return refused(op, h.Hold, reply{"fenced", meta["epoch"]})
	case meta["open"] == "":
		return refused(op, h.Hold, reply{"turn_over"})
	}
	return nil
}

// standing is what readable asks of the meta of a session.
var standing = []string{"deleted", "schema", "epoch", "open"}

// usable returns why a session with such a meta cannot be read; nil when it can.
func usable(op string, ref session.Ref, meta map[string]string) error {
	switch {
	case meta["deleted"] != "":
		return deleted(op, ref)
	case meta["schema"] == "":
		return noSession(op, ref)
	case meta["schema"] != schema:
		return barred(op, ref, reply{"schema", meta["schema"]})
	}
	return nil
}

// known is a session with such a meta.
func known(id string, meta map[string]string) session.Session {
	waiting, _, _ := strings.Cut(meta["waiting"], ":")
	found := session.Session{
		ID:            id,
		User:          meta["user"],
		State:         session.State(meta["state"]),
		Turns:         int(number(meta["turns"])),
		Messages:      number(meta["count"]),
		Bytes:         number(meta["bytes"]),
		Sequence:      number(meta["seq"]),
		Summarized:    number(meta["summarized"]),
		ArtifactBytes: number(meta["art_bytes"]),
		Created:       moment(meta["created"]),
		LastActivity:  moment(meta["active"]),
		OpenTurn:      meta["open"],
		WaitingTurn:   waiting,
		LastTrace:     meta["last_trace"],
		Revision:      number(meta["rev"]),
	}
	for field, value := range meta {
		if name, ok := strings.CutPrefix(field, label); ok {
			if found.Metadata == nil {
				found.Metadata = map[string]string{}
			}
			found.Metadata[name] = value
		}
	}
	return found
}

// states are all that a session can have.
var states = []session.State{
	session.Created, session.Ready, session.Busy, session.InputRequired,
	session.AuthRequired, session.Paused, session.Failed, session.Closed,
}

// UpdateSession implements memory.Sessions.
func (s *Store) UpdateSession(ctx context.Context, u memory.Update) (session.Session, error) {
	const op = "memory.UpdateSession"
	var moves, labels []any
	for _, from := range states {
		if to, ok := from.After(u.Verb); ok {
			moves = append(moves, string(from), string(to))
		}
	}
	for name, value := range u.Metadata {
		labels = append(labels, name, value)
	}
	args := append([]any{u.IfRevision, u.Create, u.User, memory.MaxMetadata, memory.MaxMetadataBytes, len(moves) / 2}, moves...)
	r, err := s.run(ctx, op, u.Ref, updateScript, []string{key(u.Ref, "meta")}, append(args, labels...)...)
	if err != nil {
		return session.Session{}, err
	}
	switch r.status() {
	case "ok":
	case "revision_mismatch":
		return session.Session{}, otherRevision(op, "the metadata of session "+u.Ref.Session, strconv.FormatInt(u.IfRevision, 10), r.text(1))
	case "labels_full":
		return session.Session{}, failure.Newf(failure.ResourceQuota, op,
			"metadata: session %s would have %s labels of %s bytes; a session may have %d of %d bytes: remove some",
			u.Ref.Session, r.text(1), r.text(2), memory.MaxMetadata, memory.MaxMetadataBytes)
	default:
		return session.Session{}, refusedFor(op, u.Ref, r)
	}
	found := known(u.Ref.Session, r.fields(1))
	if !u.Create {
		return found, nil
	}
	return found, s.index(ctx, op, u.Ref, found.User, found.Created)
}

// ListSessions implements memory.Sessions.
func (s *Store) ListSessions(ctx context.Context, l memory.List) ([]session.Session, string, error) {
	const op = "memory.ListSessions"
	at, err := positionOf(op, l.After)
	if err != nil {
		return nil, "", err
	}
	index := indexKey(l.Tenant, l.User)
	var found []session.Session
	for {
		entries, err := s.entries(ctx, op, index, at, l.Limit-len(found)+1)
		if err != nil {
			return nil, "", err
		}
		more := len(entries) > l.Limit-len(found)
		entries = entries[:min(len(entries), l.Limit-len(found))]
		read, err := s.listed(ctx, op, l.Tenant, index, entries)
		if err != nil {
			return nil, "", err
		}
		found = append(found, read...)
		switch {
		case !more:
			return found, "", nil
		case len(found) == l.Limit:
			return found, entries[len(entries)-1].String(), nil
		}
		at = entries[len(entries)-1]
	}
}

// listed reads the sessions of some entries, drops entries that have none, and ends
// deletions that were cut off.
func (s *Store) listed(ctx context.Context, op, tenant, index string, entries []position) ([]session.Session, error) {
	metas, err := s.metas(ctx, op, tenant, entries)
	if err != nil {
		return nil, err
	}
	var found []session.Session
	for i, e := range entries {
		meta := metas[i]
		switch {
		case gone(meta):
			err = s.unlist(ctx, op, index, e)
		case unfinished(meta):
			err = s.finish(ctx, op, session.Ref{Tenant: tenant, Session: e.session}, meta["user"])
		case usable(op, session.Ref{}, meta) == nil:
			found = append(found, known(e.session, meta))
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// refusedFor is for the replies that every call of a session may get.
func refusedFor(op string, ref session.Ref, r reply) error {
	switch r.status() {
	case "no_session":
		return noSession(op, ref)
	case "session_busy":
		return busy(op, ref, r.text(1), r.text(2))
	default:
		return unexpected(op, r)
	}
}

func otherRevision(op, what, given, current string) error {
	return failure.Newf(failure.RevisionMismatch, op, "%s is at revision %s and not %s; read it again and repeat the change", what, current, given).
		With("if_revision", given).With("revision", current)
}
