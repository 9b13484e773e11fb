// Package llmtest is the test of every adapter to a provider of models: one suite, driven
// over real HTTP against a server that answers in the provider's wire format, on good days
// and on bad ones. Its servers are for other tests too: Replay gives what was recorded, Server
// what the test decides. Fuzz has an adapter read anything at all.
package llmtest

import (
	"net/http"
	"testing"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Provider is an adapter and its provider's wire format.
type Provider struct {
	Name string // of the provider, as its errors and the prefix of its models say
	// Open returns the adapter's model of the given name, which has the prefix, without
	// retries. It sends its requests to the server at baseURL, with the key. Called once or
	// more in each test.
	Open func(name, baseURL, key string, bounds llm.Bounds) (llm.Model, error)
	Wire Wire

	// What the provider's wire format cannot say.
	NoCallIDs bool // tool calls have no ids
	NoExtra   bool // nothing is echoed with a tool call
	NoCache   bool // usage does not tell of cached tokens
	NoWrites  bool // usage does not tell of tokens written to a cache
}

// Wire translates between the suite's words and the provider's. Its methods are called from
// several goroutines.
type Wire interface {
	// Stream is an answer as the provider streams it.
	Stream(Reply) Stream
	// Refusal is the body of a response of the given status with which the provider says
	// what the kind says, in its own code where it has one; text is its message to a person.
	Refusal(status int, kind llm.Kind, text string) []byte
	// Interruption is the event with which the provider ends a stream that fails under way;
	// nil when it has none.
	Interruption(kind llm.Kind, text string) []byte
	// Asked reads a request that the adapter sent.
	Asked(r *http.Request, body []byte) (Asked, error)
}

// Reply is what the provider is to answer.
type Reply struct {
	Say      []string // text deltas, each its own event
	Calls    []Call   // after the text
	Usage    execution.Usage
	Cut      bool // it reached the limit of output tokens
	Filtered bool // a content filter stopped it after what was said

	// For a Server. Hold, if there is one, lets it send the first piece, and the others once it
	// is closed. Refuse, if it is not 0, is the status with which it refuses instead.
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

// Stream is the body of a response, in complete events, each with its line ends.
type Stream struct {
	Begin [][]byte // says nothing yet
	Body  [][]byte // the deltas; at least one an item of Say
	End   [][]byte // says that the answer is complete; with usage, if it comes last
}

// Asked is a request in the suite's words.
type Asked struct {
	Model  string // as the provider knows it: without the prefix
	Key    string // as it was sent
	System string
	// Messages have Role, Text, ToolCalls and ToolCallID, one for each tool result; and the media
	// type and the bytes of Attachments.
	Messages []conversation.Message
	Tools    []llm.ToolSpec
}

// Run tests an adapter. The caller checks for goroutines that are left over, with goleak.
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

// trial is one test of the suite.
type trial struct {
	name string
	run  func(*testbed)
}
