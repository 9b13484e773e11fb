// Package adk_test measures what a turn costs beside its model and its tools: in package loop,
// in a whole agent of package agent, and in ADK-Go, all in one run and with the same script. It
// is a module of its own, so that nothing else depends on ADK-Go.
//
//	cd bench/adk && go test -mod=mod -run '^$' -bench . -benchtime 2s
package adk_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// The script of a turn: the model calls the tool a fixed number of times and then answers.
const (
	prompt      = "What does it say?"
	instruction = "Use echo, then answer."
	answer      = "It says hello."
	word        = "hello"
)

type echo struct {
	Word string `json:"word" jsonschema:"what to say"`
}

// turn runs one scripted turn and returns its answer.
type turn func(ctx context.Context) (string, error)

// BenchmarkLoop reports the time in nanoseconds and the allocations of each iteration. An iteration is one model
// call with its tool round, and the final call counts as one. For Troupe it also reports the ratio to ADK-Go in
// the same run.
func BenchmarkLoop(b *testing.B) {
	for _, rounds := range []int{1, 10} {
		b.Run(fmt.Sprintf("rounds=%d", rounds), func(b *testing.B) {
			theirs := measure(b, "adk-go", rounds, newADK(b, rounds), nil)
			measure(b, "loop", rounds, newLoop(b, rounds), theirs)
			measure(b, "agent", rounds, newAgent(b, rounds), theirs)
		})
	}
}

// cost is per iteration.
type cost struct{ time, allocs, bytes float64 }

// measure runs turns and reports the cost per iteration. It returns nil if the benchmark did not run.
func measure(b *testing.B, name string, rounds int, run turn, against *cost) *cost {
	var c *cost
	b.Run(name, func(b *testing.B) {
		ctx := b.Context()
		if got, err := run(ctx); err != nil || got != answer {
			b.Fatalf("the turn said %q: %v", got, err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for b.Loop() {
			if _, err := run(ctx); err != nil {
				b.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		iterations := float64(b.N * (rounds + 1))
		c = &cost{
			time:   float64(b.Elapsed().Nanoseconds()) / iterations,
			allocs: float64(after.Mallocs-before.Mallocs) / iterations,
			bytes:  float64(after.TotalAlloc-before.TotalAlloc) / iterations,
		}
		b.ReportMetric(0, "ns/op") // a turn; what counts is the iteration
		b.ReportMetric(c.time, "ns/iteration")
		b.ReportMetric(c.allocs, "allocs/iteration")
		b.ReportMetric(c.bytes, "B/iteration")
		if against != nil {
			b.ReportMetric(c.time/against.time, "of-adk-time")
			b.ReportMetric(c.allocs/against.allocs, "of-adk-allocs")
		}
	})
	return c
}

// newLoop returns a turn that runs package loop alone.
func newLoop(b *testing.B, rounds int) turn {
	m := &troupeModel{rounds: rounds}
	set, err := tool.NewSet(newTroupeEcho(b))
	if err != nil {
		b.Fatal(err)
	}
	l := loop.Loop{Model: m, Tools: set, MaxIterations: rounds + 1}
	messages := []conversation.Message{conversation.User(prompt)}
	return func(ctx context.Context) (said string, _ error) {
		m.said = 0
		in := loop.Input{System: instruction, Control: hook.New(hook.Start{
			Info: hook.Info{Agent: "echo", TurnID: "turn-1", Prompt: prompt}, Messages: messages,
		})}
		for e, err := range l.Run(ctx, in) {
			if err != nil {
				return "", err
			}
			if a, ok := e.Payload.(event.Answer); ok {
				said = a.Text
			}
		}
		return said, nil
	}
}

// newAgent returns a turn that runs one step of a whole agent.
func newAgent(b *testing.B, rounds int) turn {
	m := &troupeModel{rounds: rounds}
	a, err := agent.New(agent.Config{
		Name: "echo", Instructions: instruction, Model: m, Tools: []tool.Tool{newTroupeEcho(b)}, MaxIterations: rounds + 1,
	})
	if err != nil {
		b.Fatal(err)
	}
	step := execution.Step{
		SessionID: "session-1", TurnID: "turn-1", Turn: 1, Number: 1, Attempt: 1, Agent: "echo",
		History: []conversation.Message{conversation.User(prompt)},
	}
	return func(ctx context.Context) (said string, _ error) {
		m.said = 0
		for e, err := range a.Run(ctx, agent.Invocation{Step: step}) {
			if err != nil {
				return "", err
			}
			if done, ok := e.Payload.(event.TurnResult); ok {
				said = done.Result.Text
			}
		}
		return said, nil
	}
}
