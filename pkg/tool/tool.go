// Package tool defines the tools that a model can call. A tool is a Go function with typed arguments (Func), or
// any other implementation of Tool.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Tool can be called by a model. Implementations are safe for concurrent use, because an agent runs several steps
// at once.
type Tool interface {
	// Spec describes the tool to the model. It must always return the same value.
	Spec() llm.ToolSpec
	// Call runs the tool. The arguments are as the model wrote them, so they may be invalid JSON or not match the
	// schema. An error does not end the step: the model reads its text instead of a result (CO-35). If the error
	// is a failure.Error, it reads the message.
	Call(ctx context.Context, args json.RawMessage) (Result, error)
}

// Result holds what a tool returns.
type Result struct {
	// Text is the result for the model and for later steps. If it is empty, later steps see no observation of the
	// call.
	Text string
	// Attachments are images and other files that the model gets with the text (CO-74). They are stored as artifacts of
	// the session. Name and MediaType may be empty. The limits are the ones of a user's files, from
	// conversation.MaxAttachments on; files that exceed them make the call fail. Size and Version are ignored.
	Attachments []conversation.Attachment
	// Structured is the result as JSON for clients, in addition to the text (CO-39c). It is left out if it has more than
	// 64 KiB, more than 8 levels, or a number that is not finite. The model does not read it.
	Structured json.RawMessage
}

// AskUser returns the error of a tool that cannot continue without the user. The other tools of the round still
// run. Then the turn ends with the question, and the user answers it in the next turn of the session (LP-16).
func AskUser(question string) error { return &questionError{question} }

type questionError struct{ question string }

func (q *questionError) Error() string { return "the user is asked: " + q.question }

// Question returns the question to the user if err came from AskUser. Otherwise it reports false.
func Question(err error) (string, bool) {
	if a, ok := errors.AsType[*questionError](err); ok {
		return a.question, true
	}
	return "", false
}

// Starter is implemented by tools that own resources. An agent starts them when it starts
// and closes them when it closes, in reverse order (LC-30).
type Starter interface {
	// Start acquires the resources. If it fails, it must release what it has acquired.
	Start(ctx context.Context) error
	// Close releases the resources. It is called once for each successful Start, and only while no call of the
	// tool is running. The tool may be started again afterwards.
	Close() error
}

// Limits of tools.
const (
	MaxName     = 64        // characters of a name
	MaxResult   = 256 << 10 // bytes of a result that the model reads; a longer one is cut, and the text says so
	MaxProgress = 10        // reports of a call each second; further ones are dropped
)

// namePattern matches the tool names that all model providers accept.
var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

func checkName(name string) error {
	if namePattern.MatchString(name) {
		return nil
	}
	return failure.Newf(failure.AgentValidation, "tool.New",
		"tool name %q: use 1 to %d letters, digits, underscores and hyphens", name, MaxName)
}
