package steprun

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/internal/replay"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/session"
)

// maxRecordedInput limits the encoded input of a step in its recording, in bytes.
const maxRecordedInput = 1 << 20

// EncodeInput encodes the input of a step for its recording. The result contains references to the messages of the
// session and to the results of the turn, and no secret. It is nil if the input is too large.
func EncodeInput(req *troupev1.ExecuteStepRequest) []byte {
	history, prior, auth := req.GetHistory(), req.GetPrior(), req.GetAuth()
	req.History, req.Prior, req.Auth = nil, nil, nil
	kept := proto.CloneOf(req)
	req.History, req.Prior, req.Auth = history, prior, auth

	kept.Epoch, kept.Attempt, kept.Credential = 0, 0, ""
	for _, m := range history {
		if m.GetSequence() > 0 {
			m = &troupev1.Message{Sequence: m.GetSequence(), Role: m.GetRole(), Author: m.GetAuthor(), Untrusted: m.GetUntrusted()}
		}
		kept.History = append(kept.History, m)
	}
	for _, r := range prior {
		if r.GetFailure() == nil { // failed results are stored only in the trace
			r = &troupev1.StepResult{Step: r.GetStep()}
		}
		kept.Prior = append(kept.Prior, r)
	}
	for _, a := range kept.GetAnswers() {
		a.Sealed = nil
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(kept)
	if err != nil || len(encoded) > maxRecordedInput {
		return nil
	}
	return encoded
}

// Replay runs a step again with the answers of its recording, and reports the first difference.
func (r *Runner) Replay(ctx context.Context, req *troupev1.ReplayStepRequest) (*troupev1.StepReplay, error) {
	asked := req.GetStep()
	ref := SessionRef(asked)
	step, was := wire.StepFromProto(asked), wire.ResultFromProto(req.GetResult())
	entries, err := r.loadRecording(ctx, ref, step)
	if err != nil {
		return nil, err
	}
	if err := r.loadRounds(ctx, asked, &step); err != nil {
		return nil, err
	}
	if err := r.loadAttachments(ctx, ref, step.History); err != nil {
		return nil, err
	}
	journal := replay.New(entries, was)
	step.Journal, step.Recorded = journal, true
	step.Broker = broker.New("replay").ForSession(step.SessionID) // the public keys of a replay are never published
	done, err := r.runAgent(ctx, agent.Invocation{
		Step:  step,
		Store: replayStore{hookstore.New(r.store, memory.Lease{Ref: ref, TurnID: step.TurnID}, step.User), r.store, ref, journal},
		Trace: ownership.NewTraceView(map[string]string{"trace_id": step.TraceID}), MaxIterations: int(asked.GetMaxIterations()),
	}, nil)
	if ctx.Err() != nil {
		return nil, failure.FromCause(ctx, ctx.Err())
	}
	if stepjournal.IsUnrecorded(err) {
		return &troupev1.StepReplay{Step: asked.GetStep(), Agent: asked.GetAgent(), Skipped: failure.PlainMessage(err)}, nil
	}
	if err == nil && step.Silent {
		err = dropBranchMessages(&done, step.Answers)
	}
	return replayToProto(asked, journal, journal.Compare(was, done.Result, err)), nil
}

// loadRecording loads the recording of a step, without the entry for the step's input.
func (r *Runner) loadRecording(ctx context.Context, ref session.Ref, step execution.Step) ([]execution.Entry, error) {
	var all []execution.Entry
	for from := 0; ; from = all[len(all)-1].Number + 1 {
		page, err := retry.Do(ctx, func(ctx context.Context) ([]execution.Entry, error) {
			return r.store.Recording(ctx, ref, step.TurnID, step.Number, from)
		})
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
	}
	if len(all) == 0 || all[0].Number != 0 {
		return nil, failure.Newf(failure.NotFound, "agent.ReplayStep", "step %d of turn %s has no recording (any more)", step.Number, step.TurnID)
	}
	return all[1:], nil
}

// replayStore is the store of a replayed step. It reads the current state and stores nothing.
type replayStore struct {
	hook.Store
	store   Store
	ref     session.Ref
	journal *replay.Journal
}

// SaveArtifact implements hook.Store. It stores nothing and returns the version of the existing artifact with this
// name and content. A missing artifact is a difference.
func (s replayStore) SaveArtifact(ctx context.Context, name, _ string, content []byte) (int, error) {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	all, err := retry.Do(ctx, func(ctx context.Context) ([]memory.Artifact, error) { return s.store.ListArtifacts(ctx, s.ref) })
	if err != nil {
		return 0, err
	}
	for _, a := range slices.Backward(all) {
		if a.Name == name && a.SHA256 == digest {
			return a.Version, nil
		}
	}
	d := replay.Difference{Kind: replay.OtherArtifact, Subject: name, Now: fmt.Sprintf("%d bytes, sha256 %s", len(content), digest)}
	s.journal.AddDifference(d)
	return 0, failure.New(failure.Nondeterminism, "replay", d.String())
}

// differenceKinds maps the kinds of differences to their protobuf values.
var differenceKinds = map[replay.Kind]troupev1.DifferenceKind{
	replay.ExtraCall:      troupev1.DifferenceKind_DIFFERENCE_KIND_EXTRA_CALL,
	replay.MissingCall:    troupev1.DifferenceKind_DIFFERENCE_KIND_MISSING_CALL,
	replay.OtherCall:      troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_CALL,
	replay.OtherArguments: troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_ARGUMENTS,
	replay.OtherOutcome:   troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_OUTCOME,
	replay.OtherText:      troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_TEXT,
	replay.OtherResult:    troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_RESULT,
	replay.OtherFailure:   troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_FAILURE,
	replay.OtherArtifact:  troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_ARTIFACT,
}

// maxDifferenceText limits each text of a difference in a response, in bytes.
const maxDifferenceText = 64 << 10

// replayToProto converts the outcome of a replay.
func replayToProto(req *troupev1.ExecuteStepRequest, journal *replay.Journal, d *replay.Difference) *troupev1.StepReplay {
	models, tools := journal.RepeatedCalls()
	r := &troupev1.StepReplay{Step: req.GetStep(), Agent: req.GetAgent(), ModelCalls: int32(models), ToolCalls: int32(tools)}
	for _, a := range journal.ChangedRequests() {
		if d != nil && d.Number > 0 && a.Number > d.Number {
			break // later differences are consequences of this one
		}
		r.ChangedPrompts = append(r.ChangedPrompts, &troupev1.ChangedPrompt{Number: int32(a.Number), Parts: a.Parts})
	}
	if d != nil {
		r.Difference = &troupev1.Difference{
			Kind: differenceKinds[d.Kind], Number: int32(d.Number), Subject: d.Subject,
			Recorded: conversation.Truncate(d.Recorded, maxDifferenceText), Now: conversation.Truncate(d.Now, maxDifferenceText),
		}
	}
	return r
}
