package memorywire

import (
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/convert"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
)

var sessionStates = convert.Enum[session.State, troupev1.SessionState]{
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
		State:        sessionStates.ToProto(s.State),
		Turns:        int32(s.Turns),
		Messages:     s.Size.Messages,
		Bytes:        s.Size.Bytes,
		Created:      convert.TimeToProto(s.Created),
		LastActivity: convert.TimeToProto(s.LastActivity),
		OpenTurnId:   s.OpenTurn,
		LastTraceId:  s.LastTrace,

		UserId: s.User, Metadata: s.Metadata, Revision: s.Revision,
		LastSequence: s.LastSequence, Summarized: s.Size.Summarized, ArtifactBytes: s.Size.ArtifactBytes, Unsaved: s.Size.Unsaved,
		Settings:      SettingsToProto(s.Settings),
		WaitingTurnId: s.WaitingTurn, Pending: wire.PendingToProto(s.Pending),
	}
}

// SessionFromProto is the inverse of SessionToProto.
func SessionFromProto(s *troupev1.Session) session.Session {
	return session.Session{
		ID:    s.GetSessionId(),
		State: sessionStates.FromProto(s.GetState()),
		Turns: int(s.GetTurns()),
		Size: session.Size{
			Messages: s.GetMessages(), Bytes: s.GetBytes(), ArtifactBytes: s.GetArtifactBytes(), Summarized: s.GetSummarized(), Unsaved: s.GetUnsaved(),
		},
		Created:      convert.TimeFromProto(s.GetCreated()),
		LastActivity: convert.TimeFromProto(s.GetLastActivity()),
		OpenTurn:     s.GetOpenTurnId(),
		LastTrace:    s.GetLastTraceId(),

		User: s.GetUserId(), Metadata: s.GetMetadata(), Revision: s.GetRevision(),
		LastSequence: s.GetLastSequence(), Settings: SettingsFromProto(s.GetSettings()),
		WaitingTurn: s.GetWaitingTurnId(), Pending: wire.PendingFromProto(s.GetPending()),
	}
}

// SettingsToProto converts the settings of a session. The default is nil.
func SettingsToProto(s session.Settings) *troupev1.SessionSettings {
	if s == (session.Settings{}) {
		return nil
	}
	return &troupev1.SessionSettings{
		MaxMessages: int32(s.MaxMessages), NoAutoSave: s.NoAutoSave, AutoCompact: s.AutoCompact,
		Strategy: StrategyToProto(s.Strategy), SummaryByModel: s.SummaryByModel,
	}
}

// SettingsFromProto is the inverse of SettingsToProto.
func SettingsFromProto(s *troupev1.SessionSettings) session.Settings {
	return session.Settings{
		MaxMessages: int(s.GetMaxMessages()), NoAutoSave: s.GetNoAutoSave(), AutoCompact: s.GetAutoCompact(),
		Strategy: StrategyFromProto(s.GetStrategy()), SummaryByModel: s.GetSummaryByModel(),
	}
}
