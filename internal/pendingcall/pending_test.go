package pendingcall_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

var (
	noon         = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	waitingCalls = []execution.Pending{
		{ID: pendingcall.ID(1, 1, 2), Agent: "clerk", Tool: "send_mail", Arguments: "{}", Needs: execution.NeedApproval, Until: noon},
		{ID: pendingcall.ID(1, 1, 3), Tool: "read_clipboard", Needs: execution.NeedResult},
	}
)

func TestCheckAnswers_AcceptsMatchingAnswersAndMarksLateOnes(t *testing.T) {
	approved := execution.Answer{ID: "1-1-2", Verdict: execution.Approve, By: "alice", Agent: "clerk", Digest: stepjournal.CallDigest("send_mail", "{}")}
	ran := execution.Answer{ID: "1-1-3", Verdict: execution.Succeed, Text: "copied", Digest: stepjournal.CallDigest("read_clipboard", "")}
	late := approved
	late.Late = true
	claimed := late
	claimed.Agent, claimed.Digest = "another", "what it was not asked"
	for name, tc := range map[string]struct {
		now     time.Time
		answers []execution.Answer
		want    []execution.Answer
	}{
		"in time":                           {noon, []execution.Answer{ran, approved}, []execution.Answer{ran, approved}},
		"a moment too late":                 {noon.Add(1), []execution.Answer{approved, ran}, []execution.Answer{late, ran}},
		"not all of them":                   {noon, []execution.Answer{ran}, []execution.Answer{ran}},
		"claims of the caller are replaced": {noon, []execution.Answer{claimed}, []execution.Answer{approved}},
	} {
		t.Run(name, func(t *testing.T) {
			given := append([]execution.Answer(nil), tc.answers...)
			checked, err := pendingcall.CheckAnswers(waitingCalls, tc.answers, tc.now)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, checked))
			require.Empty(t, cmp.Diff(given, tc.answers), "the caller's slice is not changed")
		})
	}
}

func TestCheckAnswers_ErrorNamesTheInvalidAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		waiting []execution.Pending
		answers []execution.Answer
		says    string
	}{
		"none": {waitingCalls, nil, "answers: there is none; waiting: 1-1-2, 1-1-3"},
		"unknown": {
			waitingCalls,
			[]execution.Answer{{ID: "1-2-1", Verdict: execution.Deny}},
			`answers[0].id: no call "1-2-1" waits here; waiting: 1-1-2, 1-1-3`,
		},
		"nothing waits": {nil, []execution.Answer{{ID: "1-2-1", Verdict: execution.Deny}}, "waiting: none"},
		"twice": {
			waitingCalls,
			[]execution.Answer{{ID: "1-1-2", Verdict: execution.Deny}, {ID: "1-1-2", Verdict: execution.Approve}},
			`answers[1].id: "1-1-2" is answered twice`,
		},
		"no verdict": {waitingCalls, []execution.Answer{{ID: "1-1-2"}}, "say one of [approve deny stop]"},
		"approval of a client's tool": {
			waitingCalls,
			[]execution.Answer{{ID: "1-1-3", Verdict: execution.Approve}},
			`answers[0].verdict: "approve" does not answer a call of read_clipboard that waits for its result; say one of [succeed fail]`,
		},
		"too long": {
			waitingCalls,
			[]execution.Answer{{ID: "1-1-3", Verdict: execution.Succeed, Text: strings.Repeat("x", execution.MaxAnswerBytes+1)}},
			"answers[0].text: 262145 bytes, at most 262144",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pendingcall.CheckAnswers(tc.waiting, tc.answers, noon)
			require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
			require.ErrorContains(t, err, tc.says)
		})
	}
}

// An answer may hold a credential only for the call that asked for one. The credential of a late answer is
// dropped.
func TestCheckAnswers_AcceptsACredentialOnlyForTheCallThatLacksIt(t *testing.T) {
	lacking := []execution.Pending{
		{ID: "1-1-2", Tool: "mail", Needs: execution.NeedAuth, Until: noon, Auth: &execution.PendingAuth{ID: "key@clerk-1"}},
		{ID: "1-1-3", Tool: "send_mail", Needs: execution.NeedApproval},
	}
	require.True(t, pendingcall.NeedsAuth(lacking))
	require.False(t, pendingcall.NeedsAuth(lacking[1:]))
	given := execution.Answer{ID: "1-1-2", Verdict: execution.Approve, Sealed: "\x00sealed", AuthID: "another"}
	checked, err := pendingcall.CheckAnswers(lacking, []execution.Answer{given}, noon)
	require.NoError(t, err)
	want := execution.Answer{ID: "1-1-2", Verdict: execution.Approve, Sealed: "\x00sealed", AuthID: "key@clerk-1", Digest: stepjournal.CallDigest("mail", "")}
	require.Equal(t, want, checked[0])
	checked, err = pendingcall.CheckAnswers(lacking, []execution.Answer{given}, noon.Add(1))
	require.NoError(t, err)
	want.Late, want.Sealed = true, ""
	require.Equal(t, want, checked[0])

	for says, wrong := range map[string]execution.Answer{
		"answers[0].sealed: only an approval": {ID: "1-1-2", Verdict: execution.Deny, Sealed: "x"},
		"waits for a credential":              {ID: "1-1-3", Verdict: execution.Approve, Sealed: "x"},
		"at most 16640":                       {ID: "1-1-2", Verdict: execution.Approve, Sealed: strings.Repeat("x", 16641)},
		"say one of [approve deny stop]":      {ID: "1-1-2", Verdict: execution.Succeed},
	} {
		_, err := pendingcall.CheckAnswers(lacking, []execution.Answer{wrong}, noon)
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
		require.ErrorContains(t, err, says)
	}
}

// An answer finds its call although the continuing turn has a different number than the waiting turn.
func TestAnswer_MatchesTheCallByStepAndNumber(t *testing.T) {
	a := execution.Answer{ID: pendingcall.ID(3, 1, 12)}
	require.True(t, a.IsFor(pendingcall.ID(4, 1, 12)))
	require.False(t, a.IsFor(pendingcall.ID(3, 1, 1)))
	require.False(t, a.IsFor(pendingcall.ID(3, 11, 2)))
	require.False(t, execution.Answer{}.IsFor(pendingcall.ID(3, 1, 12)))
	require.Equal(t, 1, a.Step())
	require.Zero(t, execution.Answer{ID: "another's"}.Step())
}
