package wire

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// oneOrNone draws a key of a table, or the zero value.
func oneOrNone[K ~string, V any](t *rapid.T, name string, table map[K]V) K {
	return rapid.SampledFrom(append(slices.Sorted(maps.Keys(table)), "")).Draw(t, name)
}

var artifact = rapid.Custom(func(t *rapid.T) memory.Artifact {
	return memory.Artifact{
		Content:   memory.Content{SHA256: word.Draw(t, "sha256"), Size: big.Draw(t, "size")},
		Name:      word.Draw(t, "name"),
		MediaType: word.Draw(t, "media type"),
		Version:   count.Draw(t, "version"),
		Turn:      word.Draw(t, "turn"),
		Created:   moment.Draw(t, "created"),
	}
})

func TestEntry_RoundTrip(t *testing.T) {
	trip(t, rapid.Custom(func(t *rapid.T) execution.Entry {
		e := execution.Entry{
			Number: count.Draw(t, "number"),
			Phase:  oneOrNone(t, "phase", phases),
			Digest: word.Draw(t, "digest"),
			Tool:   word.Draw(t, "tool"),
			Effect: oneOrNone(t, "effect", effects),
			Usage: execution.Usage{
				InputTokens: big.Draw(t, "in"), OutputTokens: big.Draw(t, "out"), ModelCalls: rapid.IntRange(0, maxCalls).Draw(t, "calls"),
				CostMicros: big.Draw(t, "cost"), CachedTokens: big.Draw(t, "cached"), CacheWriteTokens: big.Draw(t, "kept"),
			},
			Status: string(oneOrNone(t, "status", map[event.ToolStatus]troupev1.ToolStatus(statuses))),
			Text:   word.Draw(t, "text"),
		}
		if rapid.Bool().Draw(t, "of a model") {
			e.Reply = message.Draw(t, "reply")
		}
		return e
	}), EntryToProto, plain(EntryFromProto))
}

func TestUpdate_RoundTrip(t *testing.T) {
	trip(t, rapid.Custom(func(t *rapid.T) memory.Update {
		return memory.Update{
			Ref: ref.Draw(t, "ref"), Verb: oneOrNone(t, "verb", verbs), Metadata: rapid.MapOf(word, word).Draw(t, "metadata"),
			IfRevision: big.Draw(t, "revision"), Create: rapid.Bool().Draw(t, "create"), User: word.Draw(t, "user"),
		}
	}), UpdateToProto, func(u memory.Update, p *troupev1.UpdateSessionRequest) memory.Update {
		return UpdateFromProto(u.Ref.Tenant, p)
	})
}

func TestCompaction_RoundTrip(t *testing.T) {
	trip(t, rapid.Custom(func(t *rapid.T) conversation.Compaction {
		return conversation.Compaction{
			First: big.Draw(t, "first"), Last: big.Draw(t, "last"), Messages: big.Draw(t, "messages"),
			TokensSaved: big.Draw(t, "tokens"), Summary: word.Draw(t, "summary"),
		}
	}), CompactionToProto, plain(CompactionFromProto))
}

func TestHits_RoundTrip(t *testing.T) {
	trip(t, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) memory.Hit {
		return memory.Hit{Session: word.Draw(t, "session"), Message: message.Draw(t, "message"), Score: rapid.Float64Range(0, 1).Draw(t, "score")}
	}), 0, 3), func(hits []memory.Hit) *troupev1.SearchMemoryResponse {
		return &troupev1.SearchMemoryResponse{Hits: HitsToProto(hits)}
	}, plain(func(r *troupev1.SearchMemoryResponse) []memory.Hit { return HitsFromProto(r.GetHits()) }))
}

func TestSessions_RoundTrip(t *testing.T) {
	trip(t, rapid.SliceOfN(conversed, 0, 3), func(all []session.Session) *troupev1.MemoryServiceListSessionsResponse {
		return &troupev1.MemoryServiceListSessionsResponse{Sessions: SessionsToProto(all)}
	}, plain(func(r *troupev1.MemoryServiceListSessionsResponse) []session.Session {
		return SessionsFromProto(r.GetSessions())
	}))
}

func TestSnapshot_RoundTrip(t *testing.T) {
	scopes := rapid.SampledFrom([]memory.Scope{memory.ScopeSession, memory.ScopeUser, memory.ScopeApp})
	trip(t, rapid.Custom(func(t *rapid.T) memory.Snapshot {
		return memory.Snapshot{Values: values.Draw(t, "values"), Revisions: rapid.MapOf(scopes, big).Draw(t, "revisions")}
	}), func(s memory.Snapshot) *troupev1.MemoryServiceGetStateResponse {
		var r troupev1.MemoryServiceGetStateResponse
		r.Values, r.Revisions = SnapshotToProto(s)
		return &r
	}, plain(func(r *troupev1.MemoryServiceGetStateResponse) memory.Snapshot {
		return SnapshotFromProto(r.GetValues(), r.GetRevisions())
	}))
}

func TestStateUpdate_RoundTrip(t *testing.T) {
	trip(t, rapid.Custom(func(t *rapid.T) memory.StateUpdate {
		return memory.StateUpdate{
			Ref: ref.Draw(t, "ref"), RequestID: word.Draw(t, "request"), Delta: values.Draw(t, "delta"),
			IfRevision: rapid.Ptr(big, true).Draw(t, "revision"), TurnID: word.Draw(t, "turn"), Epoch: big.Draw(t, "epoch"),
		}
	}), StateUpdateToProto, func(u memory.StateUpdate, p *troupev1.UpdateStateRequest) memory.StateUpdate {
		return StateUpdateFromProto(u.Ref.Tenant, p)
	})
}

func TestArtifact_RoundTrip(t *testing.T) {
	trip(t, artifact, ArtifactToProto, plain(ArtifactFromProto))
}

func TestStrategy_RoundTrip(t *testing.T) {
	for s := range strategies {
		if got := StrategyFromProto(StrategyToProto(s)); got != s {
			t.Errorf("%s became %s", s, got)
		}
	}
}

// No value stays none, and an empty one stays one: it removes the key.
func TestValues_EmptyRemoves(t *testing.T) {
	delta := map[string]json.RawMessage{"a": nil, "b": json.RawMessage("1")}
	got := StateUpdateFromProto("", StateUpdateToProto(memory.StateUpdate{Delta: delta})).Delta
	if diff := cmp.Diff(delta, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}
