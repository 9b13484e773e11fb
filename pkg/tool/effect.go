package tool

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// Effector is implemented by tools that say what running them again would do. A tool that does not say counts as
// execution.AtMostOnce: if its worker is lost while it runs, it is not run again, and the model reads that the
// outcome is unknown.
type Effector interface {
	// Effect returns the same value each time.
	Effect() execution.Effect
}

// EffectOf returns what running the tool again would do.
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
	effect execution.Effect // (empty means the effect of the tool inside)
	login  *execution.Login // without which it cannot run (nil means the login of the tool inside)
	scope  *Scope           // (nil means the scope of the tool inside)
}

func (w *with) Effect() execution.Effect {
	if w.effect == "" {
		return EffectOf(w.Tool)
	}
	return w.effect
}

// startingWith keeps the tool a Starter if it was one.
type startingWith struct {
	with
	Starter
}

type keyOfCall struct{}

// Keyed returns a context under which IdempotencyKey is key. It is for callers of tools.
func Keyed(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyOfCall{}, key)
}

// IdempotencyKey returns the key of the current call. It is the same when the successor of a lost worker repeats
// the call, and different for every other call. Pass it on to the system that the tool calls. It is empty outside
// of a step.
func IdempotencyKey(ctx context.Context) string {
	key, _ := ctx.Value(keyOfCall{}).(string)
	return key
}
