package tool

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// Effector is implemented by tools that say what running them again would do. A tool that
// does not say is taken as execution.AtMostOnce: when its worker is lost while it runs, it
// is not run again, and the model is told that the outcome is unknown.
type Effector interface {
	// Effect is the same each time.
	Effect() execution.Effect
}

// EffectOf is what running the tool again would do.
func EffectOf(t Tool) execution.Effect {
	if e, ok := t.(Effector); ok && e.Effect() != "" {
		return e.Effect()
	}
	return execution.AtMostOnce
}

// With declares the effect of a tool. Call it around Func:
//
//	tool.With(execution.Read, search)
//
// A tool that is Idempotent finds its key with IdempotencyKey.
func With(effect execution.Effect, t Tool) Tool {
	return wrapped(with{Tool: t, effect: effect}, t)
}

func wrapped(w with, t Tool) Tool {
	if s, ok := t.(Starter); ok {
		return &startingWith{w, s}
	}
	return &w
}

type with struct {
	Tool
	effect execution.Effect // empty: what is inside decides
	login  *execution.Login // without which it cannot run; nil: what is inside decides
	scope  *Scope           // nil: what is inside decides
}

func (w *with) Effect() execution.Effect {
	if w.effect == "" {
		return EffectOf(w.Tool)
	}
	return w.effect
}

// startingWith keeps the tool a Starter.
type startingWith struct {
	with
	Starter
}

type keyOfCall struct{}

// Keyed returns a context under which IdempotencyKey is key. It is for whoever calls tools.
func Keyed(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyOfCall{}, key)
}

// IdempotencyKey is that of the call under way: the same when a successor of a lost worker
// makes the call again, and different for every other call. Hand it on to the system that
// the tool talks to. It is empty outside of a step.
func IdempotencyKey(ctx context.Context) string {
	key, _ := ctx.Value(keyOfCall{}).(string)
	return key
}
