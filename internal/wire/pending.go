package wire

import (
	"github.com/troupe-dev/troupe/internal/wire/convert"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var pendingNeeds = convert.Enum[execution.Need, troupev1.CallNeed]{
	execution.NeedApproval: troupev1.CallNeed_CALL_NEED_APPROVAL,
	execution.NeedResult:   troupev1.CallNeed_CALL_NEED_RESULT,
	execution.NeedAuth:     troupev1.CallNeed_CALL_NEED_AUTH,
}

var callVerdicts = convert.Enum[execution.Verdict, troupev1.CallVerdict]{
	execution.Approve: troupev1.CallVerdict_CALL_VERDICT_APPROVE,
	execution.Deny:    troupev1.CallVerdict_CALL_VERDICT_DENY,
	execution.Stop:    troupev1.CallVerdict_CALL_VERDICT_STOP,
	execution.Succeed: troupev1.CallVerdict_CALL_VERDICT_SUCCEED,
	execution.Fail:    troupev1.CallVerdict_CALL_VERDICT_FAIL,
}

// PendingToProto converts waiting calls to the messages that stores keep and that clients get.
func PendingToProto(all []execution.Pending) []*troupev1.PendingCall {
	return convert.All(all, pendingToProto)
}

// PendingFromProto is the inverse of PendingToProto.
func PendingFromProto(all []*troupev1.PendingCall) []execution.Pending {
	return convert.All(all, pendingFromProto)
}

// pendingToProto converts one waiting call. It does not cut the arguments, because a person decides by all of
// them.
func pendingToProto(p execution.Pending) *troupev1.PendingCall {
	return &troupev1.PendingCall{
		Id: p.ID, CallId: conversation.Truncate(p.CallID, maxNameBytes), Tool: conversation.Truncate(p.Tool, maxNameBytes), Arguments: p.Arguments,
		Needs: pendingNeeds.ToProto(p.Needs), Risk: string(p.Risk), Reason: conversation.Truncate(p.Reason,
			maxWarningBytes), Until: convert.TimeToProto(p.Until), Agent: p.Agent, Auth: pendingAuthToProto(p.Auth),
	}
}

func pendingFromProto(p *troupev1.PendingCall) execution.Pending {
	return execution.Pending{
		ID: p.GetId(), CallID: p.GetCallId(), Tool: p.GetTool(), Arguments: p.GetArguments(),
		Needs: pendingNeeds.FromProto(p.GetNeeds()), Risk: execution.Effect(p.GetRisk()), Reason: p.GetReason(),
		Until: convert.TimeFromProto(p.GetUntil()), Agent: p.GetAgent(), Auth: pendingAuthFromProto(p.GetAuth()),
	}
}

func pendingAuthToProto(a *execution.PendingAuth) *troupev1.PendingAuth {
	if a == nil {
		return nil
	}
	return &troupev1.PendingAuth{
		AuthId: a.ID, Name: conversation.Truncate(a.Name, maxLoginNameBytes), Prompt: conversation.Truncate(a.Prompt,
			maxWarningBytes), Url: conversation.Truncate(a.URL, maxURLBytes),
		PublicKey: a.Key, Expires: convert.TimeToProto(a.Expires),
	}
}

func pendingAuthFromProto(a *troupev1.PendingAuth) *execution.PendingAuth {
	if a == nil {
		return nil
	}
	return &execution.PendingAuth{
		Login: execution.Login{Name: a.GetName(), Prompt: a.GetPrompt(), URL: a.GetUrl()},
		ID:    a.GetAuthId(), Key: a.GetPublicKey(), Expires: convert.TimeFromProto(a.GetExpires()),
	}
}

// These are the limits of a PendingAuth, in bytes.
const (
	maxLoginNameBytes = 64
	maxURLBytes       = 2048
)

// AnswersToProto converts answers to waiting calls. The messages are stored and sent.
func AnswersToProto(all []execution.Answer) []*troupev1.CallAnswer {
	return convert.All(all, func(a execution.Answer) *troupev1.CallAnswer {
		return &troupev1.CallAnswer{
			Id: a.ID, Verdict: callVerdicts.ToProto(a.Verdict), Text: a.Text, By: a.By, Late: a.Late, Agent: a.Agent,
			Digest: a.Digest, Sealed: []byte(a.Sealed), AuthId: a.AuthID,
		}
	})
}

// AnswersFromProto is the inverse of AnswersToProto.
func AnswersFromProto(all []*troupev1.CallAnswer) []execution.Answer {
	return convert.All(all, func(a *troupev1.CallAnswer) execution.Answer {
		return execution.Answer{
			ID: a.GetId(), Verdict: callVerdicts.FromProto(a.GetVerdict()), Text: a.GetText(), By: a.GetBy(), Late: a.GetLate(), Agent: a.GetAgent(),
			Digest: a.GetDigest(),
			Sealed: string(a.GetSealed()), AuthID: a.GetAuthId(),
		}
	})
}
