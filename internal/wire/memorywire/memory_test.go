package memorywire

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/internal/wire/wiretest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

var randomArtifact = rapid.Custom(func(t *rapid.T) memory.Artifact {
	return memory.Artifact{
		Content:   memory.Content{SHA256: wiretest.Word.Draw(t, "sha256"), Size: wiretest.Amount.Draw(t, "size")},
		Name:      wiretest.Word.Draw(t, "name"),
		MediaType: wiretest.Word.Draw(t, "media type"),
		Version:   wiretest.Count.Draw(t, "version"),
		Turn:      wiretest.Word.Draw(t, "turn"),
		Created:   wiretest.Moment.Draw(t, "created"),
	}
})

func TestUpdate_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, rapid.Custom(func(t *rapid.T) memory.SessionUpdate {
		var changed *session.Settings
		if rapid.Bool().Draw(t, "changed") {
			drawn := settings.Draw(t, "settings")
			changed = &drawn
		}
		return memory.SessionUpdate{
			Settings: changed,
			Ref:      randomRef.Draw(t, "ref"), Verb: wiretest.OneOrNone(t, "verb", session.Pause, session.Resume, session.Close, session.Save), Metadata: rapid.MapOf(wiretest.Word,
				wiretest.Word).Draw(t, "metadata"),
			IfRevision: wiretest.Amount.Draw(t, "revision"), Create: rapid.Bool().Draw(t, "create"), User: wiretest.Word.Draw(t, "user"),
		}
	}), SessionUpdateToProto, func(u memory.SessionUpdate, p *troupev1.UpdateSessionRequest) memory.SessionUpdate {
		return SessionUpdateFromProto(u.Ref.Tenant, p)
	})
}

func TestCompaction_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, rapid.Custom(func(t *rapid.T) conversation.Compaction {
		return conversation.Compaction{
			First: wiretest.Amount.Draw(t, "first"), Last: wiretest.Amount.Draw(t, "last"), Messages: wiretest.Amount.Draw(t, "messages"),
			TokensSaved: wiretest.Amount.Draw(t, "tokens"), Summary: wiretest.Word.Draw(t, "summary"),
		}
	}), CompactionToProto, wiretest.WithoutOriginal(CompactionFromProto))
}

func TestHits_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) memory.Hit {
		return memory.Hit{Session: wiretest.Word.Draw(t, "session"), Message: wiretest.Message.Draw(t, "message"), Score: rapid.Float64Range(0, 1).Draw(t,
			"score")}
	}), 0, 3), func(hits []memory.Hit) *troupev1.SearchMemoryResponse {
		return &troupev1.SearchMemoryResponse{Hits: HitsToProto(hits)}
	}, wiretest.WithoutOriginal(func(r *troupev1.SearchMemoryResponse) []memory.Hit { return HitsFromProto(r.GetHits()) }))
}

func TestSessions_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, rapid.SliceOfN(randomSession, 0, 3), func(all []session.Session) *troupev1.MemoryServiceListSessionsResponse {
		return &troupev1.MemoryServiceListSessionsResponse{Sessions: SessionsToProto(all)}
	}, wiretest.WithoutOriginal(func(r *troupev1.MemoryServiceListSessionsResponse) []session.Session {
		return SessionsFromProto(r.GetSessions())
	}))
}

func TestSnapshot_RoundTrip(t *testing.T) {
	scopes := rapid.SampledFrom([]memory.Scope{memory.ScopeSession, memory.ScopeUser, memory.ScopeApp})
	wiretest.RoundTrip(t, rapid.Custom(func(t *rapid.T) memory.Snapshot {
		return memory.Snapshot{
			Values: randomValues.Draw(t, "values"), Revisions: rapid.MapOf(scopes, wiretest.Amount).Draw(t, "revisions"),
			Keys: rapid.MapOf(wiretest.Word, wiretest.Amount).Draw(t, "keys"), Untrusted: wiretest.Word.Draw(t, "untrusted"),
		}
	}), SnapshotToProto, wiretest.WithoutOriginal(SnapshotFromProto))
}

func TestStateUpdate_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, rapid.Custom(func(t *rapid.T) memory.StateUpdate {
		return memory.StateUpdate{
			Ref: randomRef.Draw(t, "ref"), RequestID: wiretest.Word.Draw(t, "request"), Delta: randomValues.Draw(t, "delta"),
			IfRevision: rapid.Ptr(wiretest.Amount, true).Draw(t, "revision"), TurnID: wiretest.Word.Draw(t, "turn"), Epoch: wiretest.Amount.Draw(t, "epoch"),
		}
	}), StateUpdateToProto, func(u memory.StateUpdate, p *troupev1.UpdateStateRequest) memory.StateUpdate {
		return StateUpdateFromProto(u.Ref.Tenant, p)
	})
}

func TestArtifact_RoundTrip(t *testing.T) {
	wiretest.RoundTrip(t, randomArtifact, ArtifactToProto, wiretest.WithoutOriginal(ArtifactFromProto))
}

func TestStrategy_RoundTrip(t *testing.T) {
	for s := range compactionStrategies {
		if got := StrategyFromProto(StrategyToProto(s)); got != s {
			t.Errorf("%s became %s", s, got)
		}
	}
}

// A missing value stays missing, and an empty value stays empty, because an empty value removes the key.
func TestValues_EmptyRemoves(t *testing.T) {
	delta := map[string]json.RawMessage{"a": nil, "b": json.RawMessage("1")}
	got := StateUpdateFromProto("", StateUpdateToProto(memory.StateUpdate{Delta: delta})).Delta
	if diff := cmp.Diff(delta, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}
