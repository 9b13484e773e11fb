package client

import (
	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// Seal returns the answer to a pending call that needs a credential (LP-37). It approves the call and seals the
// credential to the public key of the call. Only the worker that asked can open it, only for this call, and only
// until the key expires. Modes: user_invalid_input when the call waits for something else, or when the credential
// is empty, longer than 16 KiB or not UTF-8.
func Seal(sessionID string, call *troupev1.PendingCall, credential secret.Value) (*troupev1.CallAnswer, error) {
	auth := call.GetAuth()
	if call.GetNeeds() != troupev1.CallNeed_CALL_NEED_AUTH || auth == nil {
		return nil, failure.Newf(failure.UserInvalidInput, "client.Seal", "call %s of %s does not wait for a credential", call.GetId(), call.GetTool())
	}
	sealed, err := broker.Seal(auth.GetAuthId(), sessionID, auth.GetPublicKey(), credential)
	if err != nil {
		return nil, err
	}
	return &troupev1.CallAnswer{Id: call.GetId(), Verdict: troupev1.CallVerdict_CALL_VERDICT_APPROVE, Sealed: sealed}, nil
}
