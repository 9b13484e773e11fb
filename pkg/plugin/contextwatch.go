package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/plugin/internal/perkey"
)

// ContextWatch configures a plugin that warns while the context of a model fills up (CO-21).
type ContextWatch struct {
	At []float64 // thresholds in per cent of the context, above 0 and up to 100, in any order (empty means 50, 75 and 90)
}

// NewContextWatch returns the plugin that c describes. Modes: agent_validation.
func NewContextWatch(c ContextWatch) (hook.Plugin, error) {
	at := slices.Clone(c.At)
	for i, percent := range at {
		if !(percent > 0 && percent <= 100) {
			return hook.Plugin{}, failure.Newf(failure.AgentValidation, "plugin.NewContextWatch",
				"At[%d] is %v; use a percentage above 0 and up to 100", i, percent)
		}
	}
	if len(at) == 0 {
		at = []float64{50, 75, 90}
	}
	slices.Sort(at)
	w := &contextWatch{thresholds: at, last: perkey.New[float64]("_contextwatch")}
	return hook.Plugin{Name: ContextWatchName, Handlers: []hook.Handler{hook.AfterLLM(w.check)}}, nil
}

type contextWatch struct {
	thresholds []float64               // in ascending order
	last       *perkey.Values[float64] // per cent of the context after the last model call, by session
}

// check warns about the highest threshold that the session has crossed since its last model call. It does not warn
// about a replayed call, because an earlier attempt has done so.
func (w *contextWatch) check(_ context.Context, reply *hook.LLMReply) error {
	now, before := reply.ContextPercent(), 0.0
	info := reply.Info()
	err := w.last.Update(reply.State(), cmp.Or(info.Session, info.TurnID), func(last *float64) { before, *last = *last, now })
	if err != nil || reply.Replayed {
		return err
	}
	for _, threshold := range slices.Backward(w.thresholds) {
		if before < threshold && threshold <= now {
			reply.Warn(ReasonContextFilling, fmt.Sprintf("the context of the model is %.0f %% full (the threshold is %v %%)", now, threshold))
			break
		}
	}
	return nil
}
