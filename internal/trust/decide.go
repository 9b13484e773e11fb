package trust

import (
	"cmp"
	"context"
	"slices"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Visit is a request that stands before the gate.
type Visit struct {
	Text      string
	Signature string // text form, as the client sent it; empty: the request is not signed
	// Client is who the transport has made sure that it is, never who the request says it
	// is. Empty: nobody. With a signature the client is the one who signed, but Client must
	// not be blocked either.
	Client string
	Invite string // code that the client sent, if any
}

// By says what decided.
type By string

// What may decide.
const (
	BySignature By = "signature" // it is wrong: refused
	ByRule      By = "rule"
	ByJudge     By = "judge"
)

// Decision is what the gate says of a visit. Rules decide the same about the same.
type Decision struct {
	Allowed bool
	By      By
	Reason  string // for the log; that of a judge may be words of a model
	Client  string // whom it is about; empty when nobody proved who it is
	State   State  // of the client, before the decision; Stranger when it could not be found out
}

// Decide says whether a visit may go on. The error is nil exactly if it may, and else safe
// to return to the client:
//   - policy_security: the signature is malformed, wrong, too far from Window, or used before
//   - policy_rate_limit: more signatures than the gate can remember
//   - user_permission: a rule or the judge refused
//   - the mode of a store or judge that failed, or user_permission when it has none
//
// ctx bounds the judge. Only the judge may cost tokens; see Level for when it is asked.
// Whatever is decided, the signature is used up: Decide is asked once for a request, and not
// for each attempt at it.
func (g *Gate) Decide(ctx context.Context, v Visit) (Decision, error) {
	d := Decision{State: Stranger, Client: v.Client}
	if v.Client != "" && !validClient(v.Client) {
		return d.refuse(ByRule, clientForm, nil) // nobody could block such a one
	}
	var signature Signature
	now := g.config.Now()
	if v.Signature != "" {
		d.Client = "" // until the signature has proved who it is
		s, err := ParseSignature(v.Signature)
		if err == nil {
			err = s.Verify(g.config.Agent, v.Text, now)
		}
		if err != nil {
			return d.refuse(BySignature, failure.Plain(err), err)
		}
		signature, d.Client = s, s.Client()
	}
	known := Stranger
	for _, client := range slices.Compact([]string{v.Client, d.Client}) {
		state, err := g.State(ctx, client)
		if err != nil {
			return d.refuse(ByRule, "what is known of the client could not be read", err)
		}
		if known != Blocked {
			known = state
		}
	}
	d.State = known
	if v.Signature != "" && d.State != Blocked {
		if err := g.replays.use(signature, d.State != Stranger, now); err != nil {
			return d.refuse(BySignature, failure.Plain(err), err)
		}
	}
	allowed, reason := g.rule(v, d)
	switch {
	case allowed && reason == byInvite && d.Client != "":
		if err := g.welcome(ctx, d.Client); err != nil {
			return d.refuse(ByRule, "the client could not be made a contact", err)
		}
		return d.allow(ByRule, reason)
	case allowed:
		return d.allow(ByRule, reason)
	case reason != "":
		return d.refuse(ByRule, reason, nil)
	default:
		return g.judge(ctx, v, d)
	}
}

const byInvite = "the client has an invite"

// rule is what is certain at no cost. No reason means that no rule decides.
func (g *Gate) rule(v Visit, d Decision) (allowed bool, reason string) {
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
	case g.invited(v.Invite):
		return true, byInvite
	case g.config.Judge == nil:
		return false, "the agent does not know the client; ask its operator for an invite"
	}
	return false, ""
}

// welcome makes a contact of a stranger, unless somebody decided otherwise since.
func (g *Gate) welcome(ctx context.Context, client string) error {
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

// judge asks the judge, whose verdict is about this request only.
func (g *Gate) judge(ctx context.Context, v Visit, d Decision) (Decision, error) {
	verdict, err := g.config.Judge.Decide(ctx, Case{
		Agent: g.config.Agent, Policy: g.config.Policy,
		Client: d.Client, State: d.State, Signed: v.Signature != "", Text: v.Text,
	})
	switch {
	case err != nil:
		return d.refuse(ByJudge, "the judge did not decide", err)
	case verdict.Reason == "":
		return d.refuse(ByJudge, "the judge gave no reason", nil)
	case !verdict.Allow:
		return d.refuse(ByJudge, verdict.Reason, nil)
	}
	return d.allow(ByJudge, verdict.Reason)
}

func (d Decision) allow(by By, reason string) (Decision, error) {
	d.Allowed, d.By, d.Reason = true, by, reason
	return d, nil
}

// refuse keeps what a judge said, and what went wrong, from the client: one is a model's
// wording, the other about the agent's insides.
func (d Decision) refuse(by By, reason string, cause error) (Decision, error) {
	d.Allowed, d.By, d.Reason = false, by, reason
	message := reason
	if by == ByJudge {
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
