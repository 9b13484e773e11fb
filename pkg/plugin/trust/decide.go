package trust

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Visit is a request that a gate decides about.
type Visit struct {
	Text      string
	Signature string // text form of the signature, as the client sent it (empty for an unsigned request)
	// Client is the identity that the transport has verified, never one that the request only claims (empty means
	// unknown). For a signed request the client is the signer, but Client must not be blocked either.
	Client string
	Invite string // invite code that the client sent (empty for none)
}

// Decider says what made a decision.
type Decider string

// The values of Decider.
const (
	DecidedBySignature Decider = "signature" // rejected because the signature is invalid
	DecidedByRule      Decider = "rule"
	DecidedByJudge     Decider = "judge"
)

// Decision is the decision of the gate about a visit. Rules make equal decisions about equal visits.
type Decision struct {
	Allowed   bool
	DecidedBy Decider
	Reason    string // for the log; the reason of a judge may be written by a model
	Client    string // the client (empty if its identity is not proven)
	State     State  // state of the client before the decision (Stranger if it could not be read)
}

// Decide decides whether a visit is admitted. The error is nil exactly if it is admitted, and is safe to return to the
// client:
//   - policy_security: the signature is malformed, wrong, outside of Window, or was used before
//   - policy_rate_limit: there are more signatures than the gate can remember
//   - user_permission: a rule or the judge refused
//   - the mode of a store or judge that failed, or user_permission if it has none
//
// ctx bounds the judge. Only the judge may cost tokens; see Level for when it is asked. Decide uses up the signature,
// whatever the decision. Call it once for a request, not for each attempt.
func (g *Gate) Decide(ctx context.Context, v Visit) (Decision, error) {
	d := Decision{State: Stranger, Client: v.Client}
	if v.Client != "" && !validClient(v.Client) {
		return d.reject(DecidedByRule, clientForm, nil) // such a name could not be blocked
	}
	now := g.config.Now()
	signature, err := g.verify(v, now)
	if v.Signature != "" {
		d.Client = "" // until the signature proves who it is
	}
	if err != nil {
		return d.reject(DecidedBySignature, failure.PlainMessage(err), err)
	}
	if v.Signature != "" {
		d.Client = signature.Client()
	}
	if d.State, err = g.stateOf(ctx, v.Client, d.Client); err != nil {
		d.State = Stranger
		return d.reject(DecidedByRule, "what is known of the client could not be read", err)
	}
	if v.Signature != "" && d.State != Blocked {
		if err := g.usedSignatures.record(signature, d.State != Stranger, now); err != nil {
			return d.reject(DecidedBySignature, failure.PlainMessage(err), err)
		}
	}
	return g.applyRules(ctx, v, d)
}

// verify returns the signature of a visit, or the zero Signature for an unsigned visit. It fails if the signature
// is not valid at the time now.
func (g *Gate) verify(v Visit, now time.Time) (Signature, error) {
	if v.Signature == "" {
		return Signature{}, nil
	}
	s, err := ParseSignature(v.Signature)
	if err != nil {
		return Signature{}, err
	}
	return s, s.Verify(g.config.Agent, v.Text, now)
}

// stateOf returns the state of a client that the transport and a signature may name differently. The state is
// Blocked if either name is blocked. Otherwise it is the state of the signer.
func (g *Gate) stateOf(ctx context.Context, transport, signer string) (State, error) {
	known := Stranger
	for _, client := range slices.Compact([]string{transport, signer}) {
		state, err := g.State(ctx, client)
		if err != nil {
			return "", err
		}
		if known != Blocked {
			known = state
		}
	}
	return known, nil
}

// applyRules applies the rules to a client whose state is known. It asks the judge if no rule decides.
func (g *Gate) applyRules(ctx context.Context, v Visit, d Decision) (Decision, error) {
	allowed, reason := g.matchRule(v, d)
	switch {
	case allowed && reason == invitedReason && d.Client != "":
		if err := g.makeContact(ctx, d.Client); err != nil {
			return d.reject(DecidedByRule, "the client could not be made a contact", err)
		}
		return d.allow(DecidedByRule, reason)
	case allowed:
		return d.allow(DecidedByRule, reason)
	case reason != "":
		return d.reject(DecidedByRule, reason, nil)
	default:
		return g.askJudge(ctx, v, d)
	}
}

const invitedReason = "the client has an invite"

// matchRule decides by the level of the gate and the known facts about the client. An empty reason means that no
// rule decides.
func (g *Gate) matchRule(v Visit, d Decision) (allowed bool, reason string) {
	switch {
	case d.State == Blocked:
		return false, "the client is blocked"
	case d.State == Admin, d.State == Whitelisted:
		return true, "the client is " + string(d.State)
	case g.config.Level == Open:
		return true, "the agent is open to all"
	case g.config.Level == Strict:
		return false, "the agent is open to whitelisted clients only"
	case d.State == Contact:
		return true, "the client is a contact"
	case d.Client != "" && slices.Contains(g.config.Allow, d.Client):
		return true, "the client is on the allow-list"
	case g.isInvited(v.Invite):
		return true, invitedReason
	case g.config.Judge == nil:
		return false, "the agent does not know the client; ask its operator for an invite"
	}
	return false, ""
}

// makeContact makes a stranger a contact. It keeps any other state. It fails if the client has been blocked since
// its state was read.
func (g *Gate) makeContact(ctx context.Context, client string) error {
	_, err := g.config.Store.Change(ctx, client, func(from State) (State, error) {
		switch from {
		case Blocked:
			return "", failure.New(failure.UserPermission, "trust.Decide", "the client is blocked")
		case Stranger:
			return Contact, nil
		default:
			return from, nil
		}
	})
	return err
}

// askJudge asks the judge. Its verdict applies to this request only.
func (g *Gate) askJudge(ctx context.Context, v Visit, d Decision) (Decision, error) {
	verdict, err := g.config.Judge.Decide(ctx, Case{
		Agent: g.config.Agent, Policy: g.config.Policy,
		Client: d.Client, State: d.State, Signed: v.Signature != "", Text: v.Text,
	})
	switch {
	case err != nil:
		return d.reject(DecidedByJudge, "the judge did not decide", err)
	case verdict.Reason == "":
		return d.reject(DecidedByJudge, "the judge gave no reason", nil)
	case !verdict.Allow:
		return d.reject(DecidedByJudge, verdict.Reason, nil)
	}
	return d.allow(DecidedByJudge, verdict.Reason)
}

func (d Decision) allow(by Decider, reason string) (Decision, error) {
	d.Allowed, d.DecidedBy, d.Reason = true, by, reason
	return d, nil
}

// reject returns the decision and an error that hides the text of a judge and the cause from the client. A model
// may have written the text, and the cause may reveal internals of the agent.
func (d Decision) reject(by Decider, reason string, cause error) (Decision, error) {
	d.Allowed, d.DecidedBy, d.Reason = false, by, reason
	message := reason
	if by == DecidedByJudge {
		message = "the judge of the agent did not let it in"
	}
	mode := failure.UserPermission
	if cause != nil {
		mode = cmp.Or(failure.ModeOf(cause), mode)
	}
	refused := failure.New(mode, "trust.Decide", "the request is refused: "+message).With("by", string(by))
	if cause != nil {
		refused = refused.Because(cause)
	}
	return d, refused
}
