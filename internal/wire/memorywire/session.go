package memorywire

import (
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/convert"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
)

var states = convert.Enum[session.State, troupev1.SessionState]{
	session.Ready:         troupev1.SessionState_SESSION_STATE_READY,
	session.Busy:          troupev1.SessionState_SESSION_STATE_BUSY,
	session.InputRequired: troupev1.SessionState_SESSION_STATE_INPUT_REQUIRED,
	session.Failed:        troupev1.SessionState_SESSION_STATE_FAILED,
	session.Created:       troupev1.SessionState_SESSION_STATE_CREATED,
	session.AuthRequired:  troupev1.SessionState_SESSION_STATE_AUTH_REQUIRED,
	session.Paused:        troupev1.SessionState_SESSION_STATE_PAUSED,
	session.Closed:        troupev1.SessionState_SESSION_STATE_CLOSED,
}

// SessionToProto converts a session.
func SessionToProto(s session.Session) *troupev1.Session {
	return &troupev1.Session{
		SessionId:    s.ID,
		State:        states.ToProto(s.State),
		Turns:        int32(s.Turns),
		Messages:     s.Size.Messages,
		Bytes:        s.Size.Bytes,
		Created:      convert.TimeToProto(s.Created),
		LastActivity: convert.TimeToProto(s.LastActivity),
		OpenTurnId:   s.OpenTurn,
		LastTraceId:  s.LastTrace,

		UserId: s.User, Metadata: s.Metadata, Revision: s.Revision,
		LastSequence: s.LastSequence, Summarized: s.Summarized, ArtifactBytes: s.Size.ArtifactBytes,
		WaitingTurnId: s.WaitingTurn, Pending: wire.PendingToProto(s.Pending),
	}
}

// SessionFromProto is the inverse of SessionToProto.
func SessionFromProto(s *troupev1.Session) session.Session {
	return session.Session{
		ID:           s.GetSessionId(),
		State:        states.FromProto(s.GetState()),
		Turns:        int(s.GetTurns()),
		Size:         session.Size{Messages: s.GetMessages(), Bytes: s.GetBytes(), ArtifactBytes: s.GetArtifactBytes()},
		Created:      convert.TimeFromProto(s.GetCreated()),
		LastActivity: convert.TimeFromProto(s.GetLastActivity()),
		OpenTurn:     s.GetOpenTurnId(),
		LastTrace:    s.GetLastTraceId(),

		User: s.GetUserId(), Metadata: s.GetMetadata(), Revision: s.GetRevision(),
		LastSequence: s.GetLastSequence(), Summarized: s.GetSummarized(),
		WaitingTurn: s.GetWaitingTurnId(), Pending: wire.PendingFromProto(s.GetPending()),
	}
}
