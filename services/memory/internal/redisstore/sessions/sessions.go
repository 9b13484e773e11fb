// Package sessions reads, lists, searches and updates sessions independently of their turns.
package sessions

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/erasure"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/index"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
)

//go:embed scripts/update.lua
var updateSource string

var updateScript = db.Register("update", updateSource)

// labelPrefix is the prefix of the fields of the meta hash that hold metadata labels.
const labelPrefix = "md:"

// Sessions implements the methods of memory.Sessions that do not remove data. It is safe for concurrent use.
type Sessions struct {
	db      *db.DB
	index   *index.Index
	journal *journal.Journal
	eraser  *erasure.Eraser
}

// New returns a session store backed by d.
func New(d *db.DB, x *index.Index, j *journal.Journal, e *erasure.Eraser) *Sessions {
	return &Sessions{d, x, j, e}
}

// GetSession implements memory.Sessions.
func (s *Sessions) GetSession(ctx context.Context, ref session.Ref) (session.Session, error) {
	const op = "memory.GetSession"
	meta, err := s.db.ReadMeta(ctx, op, ref)
	if err != nil {
		return session.Session{}, err
	}
	found, err := sessionFromMeta(ref.Session, meta)
	if err != nil {
		return found, db.NewUnreadableError(op, err)
	}
	return s.addPendingCalls(ctx, op, ref, found, meta["waiting"])
}

// addPendingCalls adds the pending calls to a session. They are stored in the results of their steps, and expire
// together with their turn.
func (s *Sessions) addPendingCalls(ctx context.Context, op string, ref session.Ref, found session.Session, waiting string) (session.Session, error) {
	turnID, steps, waits := strings.Cut(waiting, ":")
	if !waits {
		return found, nil
	}
	var fields []string
	for step := range strings.SplitSeq(steps, ",") {
		fields = append(fields, "result"+step)
	}
	stored, err := s.db.HMGet(ctx, db.Key(ref, "turn:"+turnID), fields...).Result()
	if err != nil {
		return found, s.db.Failure(op, err)
	}
	for i, field := range fields {
		if stored[i] == nil {
			found.WaitingTurn, found.Pending = "", nil
			return found, nil
		}
		var result troupev1.StepResult
		if err := proto.Unmarshal([]byte(db.Reply(stored).Text(i)), &result); err != nil {
			return found, db.NewUnreadableError(op, fmt.Errorf("%s of turn %s: %w", field, turnID, err))
		}
		found.Pending = append(found.Pending, wire.PendingFromProto(result.GetPending())...)
	}
	return found, nil
}

// sessionFromMeta decodes a session from its meta hash.
func sessionFromMeta(id string, meta map[string]string) (session.Session, error) {
	waiting, _, _ := strings.Cut(meta["waiting"], ":")
	found := session.Session{
		ID:    id,
		User:  meta["user"],
		State: session.State(meta["state"]),
		Turns: int(db.ParseNumber(meta["turns"])),
		Size: session.Size{
			Messages: db.ParseNumber(meta["count"]), Bytes: db.ParseNumber(meta["bytes"]), ArtifactBytes: db.ParseNumber(meta["art_bytes"]),
			Summarized: db.ParseNumber(meta["summarized"]),
		},
		LastSequence: db.ParseNumber(meta["seq"]),
		Created:      db.ParseTime(meta["created"]),
		LastActivity: db.ParseTime(meta["active"]),
		OpenTurn:     meta["open"],
		WaitingTurn:  waiting,
		LastTrace:    meta["last_trace"],
		Revision:     db.ParseNumber(meta["rev"]),
	}
	for field, value := range meta {
		if name, ok := strings.CutPrefix(field, labelPrefix); ok {
			if found.Metadata == nil {
				found.Metadata = map[string]string{}
			}
			found.Metadata[name] = value
		}
	}
	if saved, ok := meta["saved"]; ok {
		found.Size.Unsaved = found.LastSequence - db.ParseNumber(saved)
	}
	var err error
	found.Settings, err = db.DecodeSettings(meta["settings"])
	return found, err
}

// allStates has all states that a session may be in.
var allStates = []session.State{
	session.Created, session.Ready, session.Busy, session.InputRequired,
	session.AuthRequired, session.Paused, session.Failed, session.Closed,
}

// UpdateSession implements memory.Sessions.
func (s *Sessions) UpdateSession(ctx context.Context, u memory.SessionUpdate) (session.Session, error) {
	const op = "memory.UpdateSession"
	var moves, labels []any
	for _, from := range allStates {
		if to, ok := from.Apply(u.Verb); ok {
			moves = append(moves, string(from), string(to))
		}
	}
	for name, value := range u.Metadata {
		labels = append(labels, name, value)
	}
	var settings session.Settings
	encoded := ""
	if u.Settings != nil {
		settings = *u.Settings
		if err := settings.Check(op); err != nil {
			return session.Session{}, err
		}
		var err error
		if encoded, err = db.EncodeSettings(settings); err != nil {
			return session.Session{}, db.NewUnencodableError(op, err)
		}
	}
	saves := u.Verb == session.Pause || u.Verb == session.Close || u.Verb == session.Save
	args := append([]any{
		u.IfRevision, u.Create, u.User, memory.MaxSessionMetadata, memory.MaxSessionMetadataBytes, len(moves) / 2,
		encoded, settings.NoAutoSave, saves,
	}, moves...)
	r, err := s.db.RunScript(ctx, op, u.Ref, updateScript, []string{db.Key(u.Ref, "meta")}, append(args, labels...)...)
	if err != nil {
		return session.Session{}, err
	}
	switch r.Status() {
	case "ok":
	case "revision_mismatch":
		given := strconv.FormatInt(u.IfRevision, 10)
		return session.Session{}, db.NewRevisionMismatchError(op, "the metadata of session "+u.Ref.Session, given, r.Text(1))
	case "labels_full":
		return session.Session{}, failure.Newf(failure.ResourceQuota, op,
			"metadata: session %s would have %s labels of %s bytes; a session may have %d of %d bytes: remove some",
			u.Ref.Session, r.Text(1), r.Text(2), memory.MaxSessionMetadata, memory.MaxSessionMetadataBytes)
	default:
		return session.Session{}, db.SessionErrorFromReply(op, u.Ref, r)
	}
	found, err := sessionFromMeta(u.Ref.Session, r.Hash(1))
	if err != nil {
		return session.Session{}, db.NewUnreadableError(op, err)
	}
	if !u.Create {
		return found, nil
	}
	return found, s.index.Add(ctx, op, u.Ref, found.User, found.Created)
}

// Tenants returns all tenants that may have sessions, sorted.
func (s *Sessions) Tenants(ctx context.Context) ([]string, error) { return s.index.Tenants(ctx) }
