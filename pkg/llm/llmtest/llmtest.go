// Package llmtest tests adapters of model providers with one suite, over real HTTP, with correct and incorrect answers in
// the provider's format. Other tests can use a Server, which sends answers that a test chooses.
package llmtest

import (
	"net/http"
	"testing"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Provider describes an adapter under test and the wire format of its provider.
type Provider struct {
	Name string // name of the provider in its errors, and the prefix of its models
	// Open returns the adapter's model with the given name, which includes its prefix. The model sends its
	// requests to the server at baseURL with the key, and does not retry. Tests may call Open more than once.
	Open func(name, baseURL, key string, timeouts llm.Timeouts) (llm.Model, error)
	Wire Wire

	// These fields say what the provider's format cannot express.
	NoCallIDs     bool // tool calls have no ids
	NoExtra       bool // no data is sent back with a tool call
	NoCache       bool // the usage does not report cached tokens
	NoCacheWrites bool // the usage does not report tokens written to a cache
	NoThoughts    bool // requests contain no thoughts, but only their signatures
}

// Wire converts between the suite's types and the provider's format. Several goroutines may call its methods.
type Wire interface {
	// Stream encodes an answer as a stream in the provider's format.
	Stream(Reply) Stream
	// Unstreamed encodes an answer as a server sends it that ignores the request for a stream: as one JSON document.
	Unstreamed(Reply) []byte
	// ErrorBody returns the body of an error response with the given status and kind. It uses the provider's own
	// code if the kind has one. text is the message for a person.
	ErrorBody(status int, kind llm.Kind, text string) []byte
	// ErrorEvent returns the event with which the provider reports an error in the middle of a stream. It returns
	// nil if the format has no such event.
	ErrorEvent(kind llm.Kind, text string) []byte
	// DecodeRequest decodes a request that the adapter has sent.
	DecodeRequest(r *http.Request, body []byte) (DecodedRequest, error)
}

// Reply is an answer that the server sends.
type Reply struct {
	Thoughts  []string // reasoning before the text, each piece in an event of its own
	Texts     []string // text deltas, each in an event of its own
	Calls     []Call   // tool calls after the text
	Usage     execution.Usage
	Truncated bool   // the answer reached the limit of output tokens
	Filtered  bool   // a content filter stopped the answer after this text
	Reason    string // finish reason in the provider's words (empty means the one that follows from the other fields)

	// Only a Server uses these fields. If Hold is set, the server sends the first piece and then waits until Hold
	// is closed. If ErrorStatus is not 0, the server responds with this error status.
	Hold        <-chan struct{}
	ErrorStatus int
}

// Call is a tool call.
type Call struct {
	ID            string
	Name          string
	ArgumentParts []string // parts of the arguments, each in an event of its own if the provider streams them
	Extra         string   // data to send back with the call, in base64 (empty if the provider has none)
}

// Stream is the body of a response. It consists of complete events, each with its line end.
type Stream struct {
	Begin [][]byte // events before the content
	Body  [][]byte // the deltas, at least one for each item of Texts
	End   [][]byte // events that complete the answer, with the usage if the provider sends it last
}

// DecodedRequest is a request of the adapter in the suite's types.
type DecodedRequest struct {
	Model  string // name of the model without the prefix
	Key    string // API key in the request
	System string
	// Messages have Role, Text, ToolCalls, ToolCallID, and Attachments with media type and bytes. Each tool result
	// is a separate message.
	Messages []conversation.Message
	Thoughts map[int]string // reasoning in a message, by the index of the message
	Tools    []llm.ToolSpec
}

// Run runs the suite with an adapter. The caller should check for leaked goroutines with goleak.
func Run(t *testing.T, p Provider) {
	for _, part := range []struct {
		name  string
		tests []suiteTest
	}{
		{"Request", requestTests},
		{"Answer", answerTests},
		{"Refusal", errorResponseTests},
		{"Stream", streamTests},
		{"Bound", boundTests},
	} {
		t.Run(part.name, func(t *testing.T) {
			for _, trial := range part.tests {
				t.Run(trial.name, func(t *testing.T) {
					t.Parallel()
					trial.run(newTestbed(t, p))
				})
			}
		})
	}
}

// suiteTest is one test of the suite.
type suiteTest struct {
	name string
	run  func(*testbed)
}
