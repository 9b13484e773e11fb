// Package ratelimit bounds how often an agent asks its model and uses its tools, in all and in
// each session. It bounds one instance of the agent: several have a limit each.
package ratelimit

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/plugin/internal/keep"
)

// Name is that of the plugin.
const Name = "ratelimit"

// DefaultWait is how long a call may wait for its turn.
const DefaultWait = 10 * time.Second

// Config describes the plugin. At least one limit is set.
type Config struct {
	ModelCalls Limit // of the conversation; what plugins ask the model beside it is not counted
	ToolCalls  Limit
	Wait       time.Duration // at most, until a call is refused; 0: DefaultWait
}

// Limit is a number of calls a minute. That many may come at once after a pause, and then they
// come evenly. 0: no limit.
type Limit struct {
	Agent   int // of all sessions together
	Session int // of each
}

// New returns the plugin that c describes. Modes: agent_validation.
//
// A call that would wait too long is refused with policy_rate_limit; the fact retry_after says
// how long it would have been, as a Go duration. A model call fails its turn so, a tool call
// only itself (CO-36). Calls that an attempt before this one made are not counted where that
// can be seen, which is at tools.
func New(c Config) (hook.Plugin, error) {
	wrong := func(format string, args ...any) (hook.Plugin, error) {
		return hook.Plugin{}, failure.Newf(failure.AgentValidation, "ratelimit.New", format, args...)
	}
	for _, limit := range []struct {
		field string
		calls int
	}{
		{"ModelCalls.Agent", c.ModelCalls.Agent},
		{"ModelCalls.Session", c.ModelCalls.Session},
		{"ToolCalls.Agent", c.ToolCalls.Agent},
		{"ToolCalls.Session", c.ToolCalls.Session},
	} {
		if limit.calls < 0 {
			return wrong("%s is %d; use calls a minute, or 0 for no limit", limit.field, limit.calls)
		}
	}
	switch {
	case c.Wait < 0:
		return wrong("Wait is %v; use a positive duration", c.Wait)
	case c.ModelCalls == (Limit{}) && c.ToolCalls == (Limit{}):
		return wrong("ModelCalls and ToolCalls are missing; set a limit, or leave the plugin out")
	}
	l := &limits{
		wait:     cmp.Or(c.Wait, DefaultWait),
		model:    kind{"model", c.ModelCalls, limiter(c.ModelCalls.Agent)},
		tool:     kind{"tool", c.ToolCalls, limiter(c.ToolCalls.Agent)},
		sessions: keep.New[map[string]*rate.Limiter]("_ratelimit"),
	}
	return hook.Plugin{Name: Name, Handlers: []hook.Handler{hook.BeforeLLM(l.beforeLLM), hook.BeforeEachTool(l.beforeTool)}}, nil
}

// limiter is nil when there is no limit.
func limiter(perMinute int) *rate.Limiter {
	if perMinute == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(float64(perMinute)/60), perMinute)
}

// kind is what is limited.
type kind struct {
	name  string
	limit Limit
	agent *rate.Limiter
}

type limits struct {
	wait        time.Duration
	model, tool kind
	sessions    *keep.Values[map[string]*rate.Limiter] // by kind
}

func (l *limits) beforeLLM(ctx context.Context, req *hook.LLMRequest) error {
	return l.await(ctx, req.Turn, l.model)
}

func (l *limits) beforeTool(ctx context.Context, c *hook.Call) error {
	if c.Replayed {
		return nil
	}
	return l.await(ctx, c.Turn, l.tool)
}

// await waits until the agent and the session may go on.
func (l *limits) await(ctx context.Context, t *hook.Turn, k kind) error {
	session, err := l.session(t, k)
	if err != nil {
		return err
	}
	now := time.Now()
	var taken []*rate.Reservation
	var delay time.Duration
	for _, limiter := range []*rate.Limiter{k.agent, session} {
		if limiter != nil {
			r := limiter.ReserveN(now, 1)
			taken, delay = append(taken, r), max(delay, r.DelayFrom(now))
		}
	}
	giveBack := func() {
		for _, r := range taken {
			r.CancelAt(time.Now())
		}
	}
	if delay > l.wait {
		giveBack()
		return failure.Newf(failure.PolicyRateLimit, "ratelimit", "there were too many %s calls; try again in %v", k.name, delay.Round(time.Second)).
			With("retry_after", delay.String())
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		giveBack()
		return context.Cause(ctx)
	}
}

// session is the limiter of the session, nil when there is no limit.
func (l *limits) session(t *hook.Turn, k kind) (found *rate.Limiter, err error) {
	if k.limit.Session == 0 {
		return nil, nil
	}
	info := t.Info()
	err = l.sessions.Do(t.State(), cmp.Or(info.Session, info.TurnID), func(of *map[string]*rate.Limiter) {
		if *of == nil {
			*of = map[string]*rate.Limiter{}
		}
		if (*of)[k.name] == nil {
			(*of)[k.name] = limiter(k.limit.Session)
		}
		found = (*of)[k.name]
	})
	return found, err
}
