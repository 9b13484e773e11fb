package plugin

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/plugin/internal/perkey"
)

// RateLimit limits how often an agent calls its model and its tools, in total and in each session. It needs at
// least one limit. The limits apply to each instance, so three instances of an agent may make three times as many
// calls.
type RateLimit struct {
	ModelCalls CallLimit // calls in the conversation; calls of plugins outside of it do not count
	ToolCalls  CallLimit
	Wait       time.Duration // longest wait of a call (0 means DefaultWait)
}

// CallLimit is a number of calls per minute (0 means no limit). After a pause, that many calls may come at once.
// Further calls are spread evenly.
type CallLimit struct {
	Agent   int // for all sessions together
	Session int // for each session
}

// NewRateLimit returns the plugin that c describes. Modes: agent_validation.
//
// A call that would wait too long is rejected with policy_rate_limit. The fact retry_after says how long it would have
// waited, as a Go duration. A rejected model call fails its turn, a rejected tool call only itself (CO-36). Tool calls
// that an earlier attempt made are not counted again.
func NewRateLimit(c RateLimit) (hook.Plugin, error) {
	wrong := func(format string, args ...any) (hook.Plugin, error) {
		return hook.Plugin{}, failure.Newf(failure.AgentValidation, "plugin.NewRateLimit", format, args...)
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
	case c.ModelCalls == (CallLimit{}) && c.ToolCalls == (CallLimit{}):
		return wrong("ModelCalls and ToolCalls are missing; set a limit, or leave the plugin out")
	}
	l := &rateLimits{
		wait:     cmp.Or(c.Wait, DefaultWait),
		model:    callKind{"model", c.ModelCalls, newLimiter(c.ModelCalls.Agent)},
		tool:     callKind{"tool", c.ToolCalls, newLimiter(c.ToolCalls.Agent)},
		sessions: perkey.New[map[string]*rate.Limiter]("_ratelimit"),
	}
	return hook.Plugin{Name: RateLimitName, Handlers: []hook.Handler{hook.BeforeLLM(l.beforeLLM), hook.BeforeEachTool(l.beforeTool)}}, nil
}

// newLimiter returns a limiter for a number of calls per minute (nil for 0, which means no limit).
func newLimiter(perMinute int) *rate.Limiter {
	if perMinute == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(float64(perMinute)/60), perMinute)
}

// callKind is a kind of call, with its limits.
type callKind struct {
	name  string // name of the kind in errors
	limit CallLimit
	agent *rate.Limiter // for all sessions together (nil if there is no limit)
}

type rateLimits struct {
	wait        time.Duration
	model, tool callKind
	sessions    *perkey.Values[map[string]*rate.Limiter] // by session; the map has the name of a kind as key
}

func (l *rateLimits) beforeLLM(ctx context.Context, req *hook.LLMRequest) error {
	return l.await(ctx, req.Turn, l.model)
}

func (l *rateLimits) beforeTool(ctx context.Context, c *hook.Call) error {
	if c.Replayed {
		return nil
	}
	return l.await(ctx, c.Turn, l.tool)
}

// await waits until the limits of the agent and of the session allow the call. It rejects a call that would have
// to wait too long.
func (l *rateLimits) await(ctx context.Context, t *hook.Turn, k callKind) error {
	session, err := l.sessionLimiter(t, k)
	if err != nil {
		return err
	}
	now := time.Now()
	var reserved []*rate.Reservation
	var delay time.Duration
	for _, limiter := range []*rate.Limiter{k.agent, session} {
		if limiter != nil {
			r := limiter.ReserveN(now, 1)
			reserved, delay = append(reserved, r), max(delay, r.DelayFrom(now))
		}
	}
	cancel := func() {
		for _, r := range reserved {
			r.CancelAt(time.Now())
		}
	}
	if delay > l.wait {
		cancel()
		return failure.Newf(failure.PolicyRateLimit, "plugin.RateLimit",
			"there were too many %s calls; try again in %v", k.name, delay.Round(time.Second)).
			With("retry_after", delay.String())
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		cancel()
		return context.Cause(ctx)
	}
}

// sessionLimiter returns the limiter of the session (nil if sessions have no limit).
func (l *rateLimits) sessionLimiter(t *hook.Turn, k callKind) (found *rate.Limiter, err error) {
	if k.limit.Session == 0 {
		return nil, nil
	}
	info := t.Info()
	err = l.sessions.Update(t.State(), cmp.Or(info.Session, info.TurnID), func(limiters *map[string]*rate.Limiter) {
		if *limiters == nil {
			*limiters = map[string]*rate.Limiter{}
		}
		if (*limiters)[k.name] == nil {
			(*limiters)[k.name] = newLimiter(k.limit.Session)
		}
		found = (*limiters)[k.name]
	})
	return found, err
}
