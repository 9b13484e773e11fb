// Package memorywire converts the values of package memory to protobuf messages and back, for the memory service
// and its clients. Requests do not contain a tenant, so the conversions of requests that need one take the tenant
// of the caller.
package memorywire

import (
	"encoding/json"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/convert"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

var sessionVerbs = convert.Enum[session.Verb, troupev1.SessionVerb]{
	session.Pause:  troupev1.SessionVerb_SESSION_VERB_PAUSE,
	session.Resume: troupev1.SessionVerb_SESSION_VERB_RESUME,
	session.Close:  troupev1.SessionVerb_SESSION_VERB_CLOSE,
	session.Save:   troupev1.SessionVerb_SESSION_VERB_SAVE,
}

var compactionStrategies = convert.Enum[conversation.Strategy, troupev1.CompactionStrategy]{
	conversation.SlidingWindow: troupev1.CompactionStrategy_COMPACTION_STRATEGY_SLIDING_WINDOW,
	conversation.Summarize:     troupev1.CompactionStrategy_COMPACTION_STRATEGY_SUMMARY,
	conversation.Hierarchical:  troupev1.CompactionStrategy_COMPACTION_STRATEGY_HIERARCHICAL,
}

// StrategyToProto converts a compaction strategy.
func StrategyToProto(s conversation.Strategy) troupev1.CompactionStrategy {
	return compactionStrategies.ToProto(s)
}

// StrategyFromProto is the inverse of StrategyToProto.
func StrategyFromProto(s troupev1.CompactionStrategy) conversation.Strategy {
	return compactionStrategies.FromProto(s)
}

// SessionsToProto converts each session by SessionToProto.
func SessionsToProto(ss []session.Session) []*troupev1.Session {
	return convert.All(ss, SessionToProto)
}

// SessionsFromProto is the inverse of SessionsToProto.
func SessionsFromProto(ss []*troupev1.Session) []session.Session {
	return convert.All(ss, SessionFromProto)
}

// SessionUpdateToProto converts an update of a session to a request.
func SessionUpdateToProto(u memory.SessionUpdate) *troupev1.UpdateSessionRequest {
	r := &troupev1.UpdateSessionRequest{
		SessionId: u.Ref.Session, Verb: sessionVerbs.ToProto(u.Verb), Metadata: u.Metadata,
		IfRevision: u.IfRevision, Create: u.Create, UserId: u.User,
	}
	if u.Settings != nil {
		if r.Settings = SettingsToProto(*u.Settings); r.Settings == nil {
			r.Settings = &troupev1.SessionSettings{}
		}
	}
	return r
}

// SessionUpdateFromProto converts a request to an update of a session in the caller's tenant.
func SessionUpdateFromProto(tenant string, r *troupev1.UpdateSessionRequest) memory.SessionUpdate {
	u := memory.SessionUpdate{
		Ref: session.Ref{Tenant: tenant, Session: r.GetSessionId()}, Verb: sessionVerbs.FromProto(r.GetVerb()), Metadata: r.GetMetadata(),
		IfRevision: r.GetIfRevision(), Create: r.GetCreate(), User: r.GetUserId(),
	}
	if r.Settings != nil {
		settings := SettingsFromProto(r.GetSettings())
		u.Settings = &settings
	}
	return u
}

// CompactionToProto converts the outcome of a compaction.
func CompactionToProto(c conversation.Compaction) *troupev1.Compaction {
	return &troupev1.Compaction{First: c.First, Last: c.Last, Messages: c.Messages, TokensSaved: c.TokensSaved, Summary: c.Summary}
}

// CompactionFromProto is the inverse of CompactionToProto.
func CompactionFromProto(c *troupev1.Compaction) conversation.Compaction {
	return conversation.Compaction{
		First: c.GetFirst(), Last: c.GetLast(), Messages: c.GetMessages(), TokensSaved: c.GetTokensSaved(), Summary: c.GetSummary(),
	}
}

// HitsToProto converts the hits of a search.
func HitsToProto(hits []memory.Hit) []*troupev1.MemoryHit {
	return convert.All(hits, func(h memory.Hit) *troupev1.MemoryHit {
		return &troupev1.MemoryHit{SessionId: h.Session, Message: wire.MessageToProto(h.Message), Score: h.Score}
	})
}

// HitsFromProto is the inverse of HitsToProto.
func HitsFromProto(hits []*troupev1.MemoryHit) []memory.Hit {
	return convert.All(hits, func(h *troupev1.MemoryHit) memory.Hit {
		return memory.Hit{Session: h.GetSessionId(), Message: wire.MessageFromProto(h.GetMessage()), Score: h.GetScore()}
	})
}

// SnapshotToProto converts the state that a session sees.
func SnapshotToProto(s memory.Snapshot) *troupev1.MemoryServiceGetStateResponse {
	revisions := map[string]int64{}
	for scope, r := range s.Revisions {
		revisions[string(scope)] = r
	}
	return &troupev1.MemoryServiceGetStateResponse{Values: valuesToProto(s.Values), Revisions: revisions, Keys: s.Keys, Untrusted: s.Untrusted}
}

// SnapshotFromProto is the inverse of SnapshotToProto.
func SnapshotFromProto(r *troupev1.MemoryServiceGetStateResponse) memory.Snapshot {
	s := memory.Snapshot{Values: valuesFromProto(r.GetValues()), Revisions: map[memory.Scope]int64{}, Keys: r.GetKeys(), Untrusted: r.GetUntrusted()}
	for scope, revision := range r.GetRevisions() {
		s.Revisions[memory.Scope(scope)] = revision
	}
	return s
}

// StateUpdateToProto converts an update of state to a request.
func StateUpdateToProto(u memory.StateUpdate) *troupev1.UpdateStateRequest {
	return &troupev1.UpdateStateRequest{
		SessionId: u.Ref.Session, RequestId: u.RequestID, Delta: valuesToProto(u.Delta),
		IfRevision: u.IfRevision, TurnId: u.TurnID, Epoch: u.Epoch,
	}
}

// StateUpdateFromProto converts a request to an update in the caller's tenant.
func StateUpdateFromProto(tenant string, r *troupev1.UpdateStateRequest) memory.StateUpdate {
	return memory.StateUpdate{
		Ref: session.Ref{Tenant: tenant, Session: r.GetSessionId()}, RequestID: r.GetRequestId(), Delta: valuesFromProto(r.GetDelta()),
		IfRevision: r.IfRevision, TurnID: r.GetTurnId(), Epoch: r.GetEpoch(),
	}
}

// ArtifactToProto converts the description of one version of an artifact.
func ArtifactToProto(a memory.Artifact) *troupev1.Artifact {
	return &troupev1.Artifact{
		Name: a.Name, Version: int32(a.Version), MediaType: a.MediaType, Size: a.Size, Sha256: a.SHA256,
		TurnId: a.Turn, Created: convert.TimeToProto(a.Created),
	}
}

// ArtifactFromProto is the inverse of ArtifactToProto.
func ArtifactFromProto(a *troupev1.Artifact) memory.Artifact {
	return memory.Artifact{
		Content: memory.Content{SHA256: a.GetSha256(), Size: a.GetSize()},
		Name:    a.GetName(), Version: int(a.GetVersion()), MediaType: a.GetMediaType(), Turn: a.GetTurnId(), Created: convert.TimeFromProto(a.GetCreated()),
	}
}

// ArtifactsToProto converts each artifact by ArtifactToProto.
func ArtifactsToProto(as []memory.Artifact) []*troupev1.Artifact {
	return convert.All(as, ArtifactToProto)
}

// ArtifactsFromProto converts each artifact by ArtifactFromProto.
func ArtifactsFromProto(as []*troupev1.Artifact) []memory.Artifact {
	return convert.All(as, ArtifactFromProto)
}

// valuesToProto encodes each value of the state as JSON.
func valuesToProto(values map[string]json.RawMessage) map[string]string {
	if values == nil {
		return nil
	}
	out := make(map[string]string, len(values))
	for key, value := range values {
		out[key] = string(value)
	}
	return out
}

func valuesFromProto(values map[string]string) map[string]json.RawMessage {
	if values == nil {
		return nil
	}
	out := make(map[string]json.RawMessage, len(values))
	for key, value := range values {
		out[key] = json.RawMessage(value)
	}
	return out
}
