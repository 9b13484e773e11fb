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
	"github.com/troupe-dev/troupe/pkg/plugin/internal/keep"
)

// DefaultTimeout is how long a call waits for an answer from outside (OC-33), and MaxTimeout how
// long it may.
const (
	DefaultTimeout = 5 * time.Minute
	MaxTimeout     = 7 * 24 * time.Hour
)

// Config describes the plugin. Without lists a tool needs an approval unless it declares that
// it only reads, or the client of the agent runs it (tool.Client): who could allow it runs it.
type Config struct {
	Asker   Asker         // asks within the turn; nil: the turn ends, and whoever goes on with it answers
	Timeout time.Duration // without an Asker, behind which an answer is a denial; 0: DefaultTimeout
	Never   []string      // tools that run without an approval, whatever they do
	Always  []string      // tools that need one, even if they only read
}

// New returns the plugin that c describes. Modes: agent_validation. At the construction of an
// agent each tool that is listed must be there: one that is misspelled would guard nothing.
//
// Without an Asker a call that needs an approval waits (hook.Call.Wait): the turn ends with
// event.InputRequired and what waits, no process holds anything meanwhile, and the turn that
// brings the answer goes on. Each answer is for one call: Session is a scope of an Asker alone.
// Where a turn cannot go on later, because the agent runs without a session, nobody can be
// asked, and tools that need an approval do not run.
//
// With an Asker, what a session's user decided for the session is kept in the agent's own state:
// until the agent ends, and for the sessions that were used last. A call that an attempt before
// this one made is not asked about again. One that was skipped then is, because nothing was kept
// of it.
//
// The person decides about the arguments as they are when the handler runs. Put the plugin
// last, for handlers behind it could change them.
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
		decided: keep.New[map[string]Answer]("_approval"),
	}
	return hook.Plugin{Name: Name, Handlers: []hook.Handler{hook.OnAgentReady(p.ready), hook.BeforeEachTool(p.before)}}, nil
}

// maxReason is how much of the description of a tool a person gets to read, in characters.
const maxReason = 240

type plugin struct {
	asker         Asker
	timeout       time.Duration
	never, always []string
	decided       *keep.Values[map[string]Answer] // by session and tool
}

func (p *plugin) ready(a hook.Agent) error {
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

// needed reports whether a call needs an approval. What nobody declared is not read-only.
func (p *plugin) needed(c *hook.Call) bool {
	switch {
	case c.Replayed || slices.Contains(p.never, c.Name): // the guard may ask all the same
		return false
	case slices.Contains(p.always, c.Name):
		return true
	default:
		return c.Effect != execution.Read && !c.AtClient
	}
}

func (p *plugin) before(ctx context.Context, c *hook.Call) error {
	if !p.needed(c) {
		return nil
	}
	if p.asker == nil && c.CanWait() {
		c.Wait(fmt.Sprintf("The agent %s wants to run %s: %s", c.Info().Agent, c.Name, conversation.Brief(c.Description, maxReason)), time.Now().Add(p.timeout))
		return nil
	}
	session := c.Info().Session
	kept, _ := p.decided.Get(c.State(), session)
	answer, ok := kept[c.Name]
	if ok && answer.Verdict == Allow && c.Untrusted != "" { // what was allowed before is not what was read since
		ok = false
	}
	if !ok {
		var err error
		if answer, err = p.ask(ctx, c); err != nil {
			return err
		}
	}
	switch answer.Verdict {
	case Allow:
		c.Allow()
	case Skip:
		c.Skip("Not run: " + c.Denied(answer.Reason))
	case Stop:
		c.Stop(c.Denied(answer.Reason))
		return nil
	default:
		p.nobody(c)
		return nil
	}
	if ok || answer.Scope != Session || session == "" {
		return nil
	}
	return p.decided.Do(c.State(), session, func(of *map[string]Answer) {
		if *of == nil {
			*of = map[string]Answer{}
		}
		(*of)[c.Name] = answer
	})
}

// ask returns an answer without a verdict when nobody can be asked.
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
		return Answer{}, nil //nolint:nilerr // nobody could be asked, which is an answer of its own
	}
	return answer, nil
}

// nobody refuses a call that nobody decides about: fail closed.
func (p *plugin) nobody(c *hook.Call) {
	c.Refuse(fmt.Sprintf("Not run: %s needs an approval, and nobody can be asked for it.", c.Name))
	c.Err = failure.Newf(failure.UserPermission, "approval", "%s needs an approval, and nobody can be asked for it", c.Name)
	c.Warn(ReasonNobody, fmt.Sprintf("the tool %s did not run, because nobody could be asked to approve it", c.Name))
}
