package scenario

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// A user sends a secret word in every field of a request, in turns that answer, use tools, fail, are cancelled or
// still run. The user then erases one session, and later all data. Afterwards no key of Redis and no tier contains
// the word. After a rewrite of the Redis log, no file of Redis or etcd contains it either. Info logs contain it
// only where a failure quotes it. The receipt lists where ids remain.
func TestErasure_InProcess(t *testing.T) {
	t.Parallel()
	s := newGatedMesh(t, rig.StartInProcess(t, rig.Config{}))
	word := "ERASE" + strings.ReplaceAll(uuid.NewString(), "-", "")
	user := "user-" + uuid.NewString()
	marked := func(req *troupev1.OrchestrateRequest, session string) *troupev1.OrchestrateRequest {
		req.UserId, req.SessionId, req.RequestId = user, session, word+req.GetRequestId()
		req.Metadata = map[string]string{word: word}
		req.Tags = []string{word}
		return req
	}
	one, two := uuid.NewString(), uuid.NewString()
	other := textRequest("What is a turn?")
	runTurn(t, s.Mesh, other)
	converse := func(session string) (running func() []*troupev1.Event) {
		answered := marked(textRequest(question+" "+word), session)
		answered.Parts = []*troupev1.Part{{Content: &troupev1.Part_Blob{Blob: &troupev1.Blob{Name: word + ".txt", Data: []byte(word)}}}}
		runTurn(t, s.Mesh, answered)
		failed, _ := slowRequest("fail")
		failed.Input = &troupev1.OrchestrateRequest_Text{Text: failed.GetText() + word}
		runTurn(t, s.Mesh, marked(failed, session))
		held, key := slowRequest("hold")
		held.Input = &troupev1.OrchestrateRequest_Text{Text: held.GetText() + word} // an argument of the tool
		wait := s.startTurn(t, marked(held, session))
		s.gate.AwaitCall(t, key+word)
		open, err := s.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: session})
		require.NoError(t, err)
		_, err = s.CancelTrace(t.Context(), &troupev1.CancelTraceRequest{TraceId: open.GetSession().GetLastTraceId(), Reason: word})
		require.NoError(t, err)
		require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED, turnResult(wait()).GetOutcome())
		again, key := slowRequest("hold")
		again.Input = &troupev1.OrchestrateRequest_Text{Text: again.GetText() + word}
		wait = s.startTurn(t, marked(again, session))
		s.gate.AwaitCall(t, key+word)
		return wait
	}
	running := converse(one)
	require.Greater(t, len(s.Stores.KeysContaining(word)), 8)
	began := time.Now()
	deleted, err := s.Sessions.DeleteSession(t.Context(), &troupev1.DeleteSessionRequest{SessionId: one})
	require.NoError(t, err)
	require.Less(t, time.Since(began), time.Minute)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED, turnResult(running()).GetOutcome(), "its client gets the outcome")
	counts := map[string]int64{}
	for _, items := range deleted.GetReceipt().GetRemoved() {
		counts[items.GetKind()] = items.GetCount()
	}
	require.EqualValues(t, 4, counts["turns"], "%v", counts)
	require.EqualValues(t, 4, counts["traces"])
	require.Positive(t, counts["messages"])
	require.Positive(t, counts["events"])
	s.Await("nothing of the session is left", func() bool { return len(s.Stores.KeysContaining(word)) == 0 })
	again, err := s.Sessions.DeleteSession(t.Context(), &troupev1.DeleteSessionRequest{SessionId: one})
	require.NoError(t, err)
	require.Equal(t, deleted.GetReceipt().GetBegan().AsTime(), again.GetReceipt().GetBegan().AsTime())
	where := s.Stores.KeysContaining(one)
	slices.Sort(where)
	require.Equal(t, []string{"m:{default/" + one + "}:meta", "o:{default/" + one + "}:erased"}, slices.DeleteFunc(where, func(key string) bool {
		return strings.HasPrefix(key, "o:{default/") && strings.HasSuffix(key, "}:rec")
	}), "the id")

	running = converse(two)
	erased, err := s.Sessions.EraseUser(t.Context(), &troupev1.EraseUserRequest{UserId: user})
	require.NoError(t, err)
	require.NotEmpty(t, erased.GetReceipt().GetRemoved())
	running()
	require.Empty(t, s.Stores.KeysContaining(word))
	_, err = s.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: two})
	require.Equal(t, failure.SessionDeleted, failure.ModeOf(grpcfailure.FromStatus("scenario", err)))
	s.Stores.RewriteRedis(t.Context())
	s.Await("no file holds the word", func() bool { return len(placesContaining(withoutFailureLogs(s.WrittenData()), word)) == 0 })
	left := s.WrittenData()
	for what, place := range map[string]string{other.GetSessionId(): "redis /", "slow-1": "etcd /", one: "log"} { // these ids must still be found
		require.Contains(t, strings.Join(placesContaining(left, what), "\n"), place, "the search does not find %s", what)
	}
}

// withoutFailureLogs removes the log lines of failed turns from the log in places. Such a line quotes the reason of a
// cancellation, which may name the user.
func withoutFailureLogs(places map[string]string) map[string]string {
	kept := strings.Builder{}
	for line := range strings.Lines(places["log"]) {
		if !strings.HasPrefix(line, "turn without an answer ") && !strings.HasPrefix(line, "a turn failed ") {
			kept.WriteString(line)
		}
	}
	places["log"] = kept.String()
	return places
}
