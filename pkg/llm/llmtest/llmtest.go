// Package llmtest tests adapters of model providers: one suite, run over real HTTP against a server that answers
// in the provider's format, correctly and incorrectly. Other tests can use its servers: Replay sends a recorded
// answer, Server sends what a test decides, and Fuzz sends anything.
package llmtest

import (
	"net/http"
	"testing"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Provider is an adapter, and the wire format of its provider.
type Provider struct {
	Name string // of the provider, as its errors and the prefix of its models say
	// Open returns the adapter's model with the given name, including its prefix, without retries. The model sends
	// its requests to the server at baseURL, with the key. Tests may call Open more than once.
	Open func(name, baseURL, key string, bounds llm.Bounds) (llm.Model, error)
	Wire Wire

	// These say what the provider's format cannot express.
	NoCallIDs bool // tool calls have no ids
	NoExtra   bool // nothing is echoed with a tool call
	NoCache   bool // usage does not tell of cached tokens
	NoWrites  bool // usage does not tell of tokens written to a cache
}

// Wire converts between the suite's types and the provider's format. Several goroutines may call its methods.
type Wire interface {
	// Stream returns an answer in the provider's stream format.
	Stream(Reply) Stream
	// Refusal returns the body of an error response with the given status and kind, in the provider's own code if
	// it has one. Text is its message for a person.
	Refusal(status int, kind llm.Kind, text string) []byte
	// Interruption returns the event with which the provider reports an error in the middle of a stream (nil if it
	// has none).
	Interruption(kind llm.Kind, text string) []byte
	// Asked decodes a request of the adapter.
	Asked(r *http.Request, body []byte) (Asked, error)
}

// Reply is an answer that the server sends.
type Reply struct {
	Say      []string // text deltas, each its own event
	Calls    []Call   // after the text
	Usage    execution.Usage
	Cut      bool // it reached the limit of output tokens
	Filtered bool // a content filter stopped it after what was said

	// These are for a Server. If Hold is set, the server waits for it to be closed after the first piece. If
	// Refuse is not 0, the server responds with this error status.
	Hold   <-chan struct{}
	Refuse int
}

// Call is a tool call.
type Call struct {
	ID    string
	Name  string
	Parts []string // of its arguments, each its own event if the provider streams them
	Extra string   // base64: what is to be echoed, if the provider has such a thing
}

// Stream is the body of a response: complete events, each with its line end.
type Stream struct {
	Begin [][]byte // says nothing yet
	Body  [][]byte // the deltas; at least one an item of Say
	End   [][]byte // says that the answer is complete; with usage, if it comes last
}

// Asked is a decoded request.
type Asked struct {
	Model  string // as the provider knows it: without the prefix
	Key    string // as it was sent
	System string
	// Messages have Role, Text, ToolCalls and ToolCallID, and Attachments with media type and bytes. Each tool
	// result is a message of its own.
	Messages []conversation.Message
	Tools    []llm.ToolSpec
}

// Run tests an adapter. The caller checks for leaked goroutines with goleak.
func Run(t *testing.T, p Provider) {
	for _, part := range []struct {
		name  string
		tests []trial
	}{
		{"Request", requests},
		{"Answer", answers},
		{"Refusal", refusals},
		{"Stream", streams},
		{"Bound", bounds},
	} {
		t.Run(part.name, func(t *testing.T) {
			for _, trial := range part.tests {
				t.Run(trial.name, func(t *testing.T) {
					t.Parallel()
					trial.run(newRig(t, p))
				})
			}
		})
	}
}

// trial is a test of the suite.
type trial struct {
	name string
	run  func(*testbed)
}
