package event_test

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// An event encodes as a trace entry in JSON.
func ExampleEvent_MarshalJSON() {
	e := event.Event{
		Invocation: "turn-1", Sequence: 2, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Author: "clerk",
		Payload: event.ModelCall{Model: "test/small", Iteration: 1, Usage: execution.Usage{InputTokens: 12, OutputTokens: 3}, Duration: 40 * time.Millisecond},
	}
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintln(os.Stdout, string(text))
	// Output:
	// {
	//   "id": "turn-1/0/2",
	//   "type": "llm_call",
	//   "timestamp": "2026-01-02T03:04:05Z",
	//   "author": "clerk",
	//   "model": "test/small",
	//   "iteration": 1,
	//   "tool_calls_count": 0,
	//   "usage": {
	//     "input_tokens": 12,
	//     "output_tokens": 3
	//   },
	//   "duration_ms": 40
	// }
}

// A message with text is part of the answer. A message that only changes state is not.
func ExampleEvent_Final() {
	said := event.Event{Payload: event.Message{Text: "Hello."}}
	changed := event.Event{Payload: event.Message{State: map[string]json.RawMessage{"city": json.RawMessage(`"Oslo"`)}}}
	fmt.Fprintln(os.Stdout, said.Final(), changed.Final())
	// Output:
	// true false
}
