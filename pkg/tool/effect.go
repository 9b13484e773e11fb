package tool

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// Effector is implemented by tools that declare whether they may run again. Other tools count as
// execution.AtMostOnce: if the worker is lost during a call, the tool is not run again, and the model reads that
// the outcome is unknown.
type Effector interface {
	// Effect returns the effect of the tool. It must always return the same value.
	Effect() execution.Effect
}

// EffectOf returns the declared effect of a tool, or execution.AtMostOnce if it declares none.
func EffectOf(t Tool) execution.Effect {
	if e, ok := t.(Effector); ok && e.Effect() != "" {
		return e.Effect()
	}
	return execution.AtMostOnce
}

// WithEffect declares the effect of a tool. Call it around Func:
//
//	tool.WithEffect(execution.Read, search)
//
// A tool that is Idempotent finds its key with IdempotencyKey.
func WithEffect(effect execution.Effect, t Tool) Tool {
	return newDecoratedTool(decoratedTool{Tool: t, effect: effect}, t)
}

func newDecoratedTool(w decoratedTool, t Tool) Tool {
	if s, ok := t.(Starter); ok {
		return &decoratedStarter{w, s}
	}
	return &w
}

type decoratedTool struct {
	Tool
	effect execution.Effect // (empty means the effect of the inner tool)
	login  *execution.Login // required credential (nil means the login of the inner tool)
	scope  *Scope           // (nil means the scope of the inner tool)
}

func (d *decoratedTool) Effect() execution.Effect {
	if d.effect == "" {
		return EffectOf(d.Tool)
	}
	return d.effect
}

// decoratedStarter decorates a tool that also implements Starter.
type decoratedStarter struct {
	decoratedTool
	Starter
}

type idempotencyKey struct{}

// ContextWithIdempotencyKey returns a context in which IdempotencyKey returns key. Callers of tools use it.
func ContextWithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, key)
}

// IdempotencyKey returns the key of the current call. It is the same when the successor of a lost worker repeats
// the call, and different for every other call. Pass it on to the system that the tool calls. It is empty outside
// of a step.
func IdempotencyKey(ctx context.Context) string {
	key, _ := ctx.Value(idempotencyKey{}).(string)
	return key
}
