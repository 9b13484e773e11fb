// Package trust puts a gate of package trust before an agent: who may use it is decided once a
// turn, before anything else (CO-61, CO-62). A refusal fails the turn.
package trust

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/trust"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/plugin/internal/keep"
)

// Name is that of the plugin.
const Name = "trust"

// The credentials of a turn that the gate looks at.
const (
	Signature = "signature" // trust.Signature in its text form, of the user's message to this agent
	Invite    = "invite"    // one of the codes of the gate
)

// Config describes the plugin.
type Config struct {
	Gate trust.Config // with the name of the agent; one without a Store has one in RAM
	// TrustActor takes the actor of a turn for the client that it names. Set it only where
	// something before the mesh makes sure who its callers are: the mesh hands on what a
	// caller says. Otherwise who does not sign is a stranger.
	TrustActor bool
	Log        *zap.Logger // is told each decision; nil: nobody
}

// New returns the plugin that c describes. Modes: those of trust.New.
//
// The gate is asked once a turn: what it let in is remembered by the id of the turn, so that
// a later step of the turn does not find its signature used up. A successor of a lost worker
// (an attempt above 1) does not check again whether the signature was used before, and takes
// its age when the session got the message: that was for the first attempt to see. Who can
// make a worker die before it asks its gate may so use a signature twice.
//
// A judge that is an agent with this plugin itself is not judged in turn (CO-61). What a judge
// consumes is not in the turn's usage: it is asked before the turn has a model.
func New(c Config) (hook.Plugin, error) {
	if c.Gate.Store == nil {
		c.Gate.Store = &trust.RAMStore{}
	}
	if c.Gate.Judge != nil {
		c.Gate.Judge = judge{c.Gate.Judge}
	}
	gate, err := trust.New(c.Gate)
	if err != nil {
		return hook.Plugin{}, err
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	d := &door{config: c, gate: gate, allowed: keep.New[bool]("_trust")}
	return hook.Plugin{Name: Name, Handlers: []hook.Handler{hook.BeforeAgent(d.decide)}}, nil
}

// door is where the gate stands.
type door struct {
	config  Config
	gate    *trust.Gate
	allowed *keep.Values[bool] // turns that were let in, by id
}

func (d *door) decide(ctx context.Context, t *hook.Turn) (string, error) {
	if ctx.Value(judgingKey{}) != nil {
		return "", nil
	}
	info := t.Info()
	if _, ok := d.allowed.Get(t.State(), info.TurnID); ok {
		return "", nil
	}
	gate := d.gate
	if info.Attempt > 1 {
		again := d.config.Gate
		if at := spoken(t.Messages()); !at.IsZero() {
			again.Now = func() time.Time { return at }
		}
		var err error
		if gate, err = trust.New(again); err != nil {
			return "", err
		}
	}
	decision, err := gate.Decide(ctx, d.visit(ctx, info.Prompt))
	d.config.Log.Info("trust decision", zap.String("agent", info.Agent), zap.String("turn", info.TurnID),
		zap.Bool("allowed", decision.Allowed), zap.String("by", string(decision.By)), zap.String("reason", decision.Reason),
		zap.String("client", decision.Client), zap.String("state", string(decision.State)))
	if err != nil || info.TurnID == "" {
		return "", err
	}
	return "", d.allowed.Do(t.State(), info.TurnID, func(allowed *bool) { *allowed = true })
}

func (d *door) visit(ctx context.Context, text string) trust.Visit {
	auth, _ := execution.AuthFrom(ctx)
	v := trust.Visit{Text: text, Signature: auth.Credentials[Signature].Reveal(), Invite: auth.Credentials[Invite].Reveal()}
	if d.config.TrustActor {
		v.Client = auth.Actor
	}
	return v
}

// spoken is when the session got the user's message of the turn; zero when it was not stored.
func spoken(messages []conversation.Message) (at time.Time) {
	for _, m := range messages {
		if m.Role == conversation.RoleUser && m.Author == "" {
			at = m.Time
		}
	}
	return at
}

// judge marks what is done for a judge, so that an agent that judges has no gate before it.
type judge struct{ trust.Judge }

type judgingKey struct{}

// Decide implements trust.Judge.
func (j judge) Decide(ctx context.Context, c trust.Case) (trust.Verdict, error) {
	return j.Judge.Decide(context.WithValue(ctx, judgingKey{}, true), c)
}
