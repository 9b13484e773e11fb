package approval

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/plugin/internal/perkey"
)

// DefaultTimeout and MaxTimeout are the default and the maximum of how long a call waits for an answer from
// outside (OC-33).
const (
	DefaultTimeout = 5 * time.Minute
	MaxTimeout     = 7 * 24 * time.Hour
)

// Config holds the settings of the plugin. If both lists are empty, every tool needs an approval except in two
// cases: it declares that it only reads, or the client of the agent runs it (tool.Client) and so decides itself.
type Config struct {
	Asker   Asker         // asks within the turn (nil means that the turn ends, and a later turn brings the answer)
	Timeout time.Duration // how long a call waits without an Asker, after which it is denied (0 means DefaultTimeout)
	Never   []string      // tools that run without an approval, whatever they do
	Always  []string      // tools that need one, even if they only read
}

// New returns the plugin that c describes. Modes: agent_validation. When an agent is made, it must have each
// listed tool, because a misspelled name would guard nothing. Without an Asker a call that needs an approval waits
// (hook.Call.Wait). The turn ends with event.InputRequired and the pending calls, no process holds anything in the
// meantime, and the turn with the answer continues. Each answer is for one call; the scope Session needs an Asker.
// If a turn cannot continue later, because the agent runs without a session, no person can be asked, and tools
// that need an approval do not run. With an Asker, decisions for the whole session are kept in the agent's own
// state until the agent ends, for the most recently used sessions. A call from an earlier attempt is not asked
// about again, unless it was skipped, because nothing was recorded for it. The person decides about the arguments
// as they are when the handler runs. Put the plugin last, because later handlers could change them.
func New(c Config) (hook.Plugin, error) {
	if both := slices.IndexFunc(c.Always, func(name string) bool { return slices.Contains(c.Never, name) }); both >= 0 {
		return hook.Plugin{}, failure.Newf(failure.AgentValidation, "approval.New",
			"Always[%d] is %q, which is in Never as well; leave one out", both, c.Always[both])
	}
	if c.Timeout < 0 || c.Timeout > MaxTimeout {
		return hook.Plugin{}, failure.Newf(failure.AgentValidation, "approval.New", "Timeout %v: use a duration of at most %v, or 0 for %v",
			c.Timeout, MaxTimeout, DefaultTimeout)
	}
	p := &plugin{
		asker: c.Asker, timeout: cmp.Or(c.Timeout, DefaultTimeout), never: slices.Clone(c.Never), always: slices.Clone(c.Always),
		decisions: perkey.New[map[string]Answer]("_approval"),
	}
	return hook.Plugin{Name: Name, Handlers: []hook.Handler{hook.OnAgentReady(p.checkAgent), hook.BeforeEachTool(p.beforeTool)}}, nil
}

// maxReason limits how much of a tool's description a person is shown, in characters.
const maxReason = 240

type plugin struct {
	asker         Asker
	timeout       time.Duration
	never, always []string
	decisions     *perkey.Values[map[string]Answer] // decisions for the whole session, by session and tool
}

func (p *plugin) checkAgent(a hook.Agent) error {
	for _, list := range []struct {
		field string
		tools []string
	}{{"Never", p.never}, {"Always", p.always}} {
		for i, name := range list.tools {
			if slices.Contains(a.Tools, name) {
				continue
			}
			there := "it has none"
			if near := manifest.Nearest(name, a.Tools); near != "" {
				there = fmt.Sprintf("did you mean %q?", near)
			} else if len(a.Tools) > 0 {
				there = "there are " + strings.Join(a.Tools, ", ")
			}
			return failure.Newf(failure.AgentValidation, "approval.New", "%s[%d]: agent %s has no tool %q; %s", list.field, i, a.Name, name, there)
		}
	}
	return nil
}

// needsApproval reports whether a call needs an approval. A tool that declares no effect is not treated as
// read-only.
func (p *plugin) needsApproval(c *hook.Call) bool {
	switch {
	case c.Replayed || slices.Contains(p.never, c.Name): // the guard of the tool may still ask
		return false
	case slices.Contains(p.always, c.Name):
		return true
	default:
		return c.Effect != execution.Read && !c.AtClient
	}
}

func (p *plugin) beforeTool(ctx context.Context, c *hook.Call) error {
	if !p.needsApproval(c) {
		return nil
	}
	if p.asker == nil && c.CanWait() {
		c.Wait(fmt.Sprintf("The agent %s wants to run %s: %s", c.Info().Agent, c.Name, conversation.Excerpt(c.Description, maxReason)),
			time.Now().Add(p.timeout))
		return nil
	}
	answer, isKept := p.keptDecision(c)
	if !isKept {
		var err error
		if answer, err = p.ask(ctx, c); err != nil {
			return err
		}
	}
	p.apply(answer, c)
	if isKept || answer.Scope != Session || c.Info().Session == "" || answer.Verdict != Allow && answer.Verdict != Skip {
		return nil
	}
	return p.keepDecision(answer, c)
}

// keptDecision returns the decision of a person about this tool for the whole session. A person who has approved it
// before the turn read untrusted text is asked again.
func (p *plugin) keptDecision(c *hook.Call) (Answer, bool) {
	kept, _ := p.decisions.Get(c.State(), c.Info().Session)
	answer, ok := kept[c.Name]
	return answer, ok && (answer.Verdict != Allow || c.Untrusted == "")
}

// keepDecision keeps a decision about this tool for the whole session.
func (p *plugin) keepDecision(answer Answer, c *hook.Call) error {
	return p.decisions.Update(c.State(), c.Info().Session, func(of *map[string]Answer) {
		if *of == nil {
			*of = map[string]Answer{}
		}
		(*of)[c.Name] = answer
	})
}

// apply does to the call what a person has decided. Without a decision the tool does not run.
func (p *plugin) apply(answer Answer, c *hook.Call) {
	switch answer.Verdict {
	case Allow:
		c.Allow()
	case Skip:
		c.Skip("Not run: " + c.DenialText(answer.Reason))
	case Stop:
		c.Stop(c.DenialText(answer.Reason))
	default:
		p.reject(c)
	}
}

// ask asks a person about the call. It returns an answer without a verdict if no person can be asked.
func (p *plugin) ask(ctx context.Context, c *hook.Call) (Answer, error) {
	if p.asker == nil {
		return Answer{}, nil
	}
	q := Question{
		Turn: c.Info(), CallID: c.ID, Tool: c.Name, Description: c.Description, Arguments: c.Arguments, Risk: c.Effect,
		Untrusted: c.Untrusted,
	}
	for i, call := range c.Pending() {
		if call.ID == c.ID {
			q.Remaining = c.Pending()[i+1:]
		}
	}
	answer, err := p.asker.Ask(ctx, q)
	if ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	if err != nil {
		return Answer{}, nil //nolint:nilerr // no person could be asked, which is an answer of its own
	}
	return answer, nil
}

// reject rejects a call about which no person can decide, because without a decision the tool must not run.
func (p *plugin) reject(c *hook.Call) {
	c.Reject(fmt.Sprintf("Not run: %s needs an approval, and no person can be asked.", c.Name))
	c.Err = failure.Newf(failure.UserPermission, "approval", "%s needs an approval, and no person can be asked", c.Name)
	c.Warn(ReasonNotPossible, fmt.Sprintf("the tool %s did not run, because no person could be asked to approve it", c.Name))
}
