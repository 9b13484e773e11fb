package trust

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/plugin/internal/perkey"
)

// Name is the name of the plugin.
const Name = "trust"

// The names of the turn's credentials that the gate checks.
const (
	SignatureCredential = "signature" // a Signature of the user's message to this agent, as text
	InviteCredential    = "invite"    // an invite code of the gate
)

// Config holds the settings of the plugin, which puts a gate in front of an agent. The gate decides once per turn,
// before anything else runs, whether the client may use the agent (CO-61, CO-62). If it rejects the client, the
// turn fails.
type Config struct {
	Gate GateConfig // needs the name of the agent
	// TrustActor treats the actor of a turn as its client. Set it only if something in front of the mesh verifies
	// callers, because the mesh passes the actor on as the caller sends it. Otherwise a client without a signature
	// is a stranger.
	TrustActor bool
	Log        *zap.Logger // for each decision (nil logs nothing)
}

// New returns the plugin that c describes. It has the errors of NewGate.
//
// The gate remembers by their ids the turns that it has admitted, because a later step of a turn shows the same signature
// again. The successor of a lost worker (an attempt above 1) does not check again whether the signature was used before,
// and computes its age at the time when the session received the message: the first attempt has checked both. So a
// client that can make a worker die before it asks its gate can use a signature twice.
//
// If the judge is an agent with this plugin, the turns in which it judges are not judged (CO-61). The usage of a judge
// does not count in the turn, which has no model yet.
func New(c Config) (hook.Plugin, error) {
	if c.Gate.Store == nil {
		c.Gate.Store = &RAMStore{}
	}
	if c.Gate.Judge != nil {
		c.Gate.Judge = exemptJudge{c.Gate.Judge}
	}
	gate, err := NewGate(c.Gate)
	if err != nil {
		return hook.Plugin{}, err
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	d := &gatekeeper{config: c, gate: gate, admitted: perkey.New[bool]("_trust")}
	return hook.Plugin{Name: Name, Handlers: []hook.Handler{hook.BeforeAgent(d.decide)}}, nil
}

// gatekeeper holds the gate of an agent and the turns that it has admitted.
type gatekeeper struct {
	config   Config
	gate     *Gate
	admitted *perkey.Values[bool] // by the id of the turn
}

func (g *gatekeeper) decide(ctx context.Context, t *hook.Turn) (string, error) {
	if ctx.Value(judgingKey{}) != nil {
		return "", nil
	}
	info := t.Info()
	if _, ok := g.admitted.Get(t.State(), info.TurnID); ok {
		return "", nil
	}
	gate := g.gate
	if info.Attempt > 1 {
		again := g.config.Gate
		if at := promptTime(t.Messages()); !at.IsZero() {
			again.Now = func() time.Time { return at }
		}
		var err error
		if gate, err = NewGate(again); err != nil {
			return "", err
		}
	}
	decision, err := gate.Decide(ctx, g.newVisit(ctx, info.Prompt))
	g.config.Log.Info("trust decision", zap.String("agent", info.Agent), zap.String("turn", info.TurnID),
		zap.Bool("allowed", decision.Allowed), zap.String("by", string(decision.DecidedBy)), zap.String("reason", decision.Reason),
		zap.String("client", decision.Client), zap.String("state", string(decision.State)))
	if err != nil || info.TurnID == "" {
		return "", err
	}
	return "", g.admitted.Update(t.State(), info.TurnID, func(admitted *bool) { *admitted = true })
}

func (g *gatekeeper) newVisit(ctx context.Context, text string) Visit {
	auth, _ := execution.AuthFrom(ctx)
	v := Visit{Text: text, Signature: auth.Credentials[SignatureCredential].Reveal(), Invite: auth.Credentials[InviteCredential].Reveal()}
	if g.config.TrustActor {
		v.Client = auth.Actor
	}
	return v
}

// promptTime returns when the session received the user's message of the turn (zero if the message was not
// stored).
func promptTime(messages []conversation.Message) (at time.Time) {
	for _, m := range messages {
		if m.Role == conversation.RoleUser && m.Author == "" {
			at = m.Time
		}
	}
	return at
}

// exemptJudge marks the context in which a judge runs. If the judge is an agent with this plugin, the mark makes
// its own gate admit the turn.
type exemptJudge struct{ Judge }

type judgingKey struct{}

// Decide implements Judge.
func (j exemptJudge) Decide(ctx context.Context, c Case) (Verdict, error) {
	return j.Judge.Decide(context.WithValue(ctx, judgingKey{}, true), c)
}
