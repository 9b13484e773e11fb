// Package contextwatch warns when the context of a model fills up, before it is full (CO-21).
package contextwatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/plugin/internal/keep"
)

// Name is that of the plugin.
const Name = "contextwatch"

// ReasonFilling is that of the warnings.
const ReasonFilling = "CONTEXT_FILLING"

// Config describes the plugin.
type Config struct {
	At []float64 // per cent of the context, above 0 and up to 100, in any order; none: 50, 75 and 90
}

// New returns the plugin that c describes. Modes: agent_validation.
func New(c Config) (hook.Plugin, error) {
	at := slices.Clone(c.At)
	for i, percent := range at {
		if !(percent > 0 && percent <= 100) {
			return hook.Plugin{}, failure.Newf(failure.AgentValidation, "contextwatch.New", "At[%d] is %v; use a percentage above 0 and up to 100", i, percent)
		}
	}
	if len(at) == 0 {
		at = []float64{50, 75, 90}
	}
	slices.Sort(at)
	w := &watch{at: at, last: keep.New[float64]("_contextwatch")}
	return hook.Plugin{Name: Name, Handlers: []hook.Handler{hook.AfterLLM(w.look)}}, nil
}

type watch struct {
	at   []float64
	last *keep.Values[float64] // how full the context was, by session
}

// look warns of the highest threshold that was crossed since the session's last call of the
// model. A call that an attempt before this one made was told then.
func (w *watch) look(_ context.Context, reply *hook.LLMReply) error {
	now, before := reply.ContextPercent(), 0.0
	info := reply.Info()
	err := w.last.Do(reply.State(), cmp.Or(info.Session, info.TurnID), func(last *float64) { before, *last = *last, now })
	if err != nil || reply.Replayed {
		return err
	}
	for _, threshold := range slices.Backward(w.at) {
		if before < threshold && threshold <= now {
			reply.Warn(ReasonFilling, fmt.Sprintf("the context of the model is %.0f %% full (the threshold is %v %%)", now, threshold))
			break
		}
	}
	return nil
}
