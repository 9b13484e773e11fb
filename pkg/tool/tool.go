// Package tool is the contract between agents and the tools that a model can call. A tool is a Go function with
// typed arguments (Func), or any implementation of Tool.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Tool can be called by a model. Implementations are safe for concurrent use, because an agent runs several steps
// at once.
type Tool interface {
	// Spec describes the tool to the model. It returns the same value each time.
	Spec() llm.ToolSpec
	// Call runs the tool. The arguments are as the model wrote them, so they may be invalid JSON or not match the
	// schema. An error does not end the step: the model reads its text instead of a result (CO-35). If the error
	// is a failure.Error, it reads the message.
	Call(ctx context.Context, args json.RawMessage) (Result, error)
}

// Result is what a tool returns.
type Result struct {
	// Text is for the model, and for later steps. If it is empty, the tool leaves no observation.
	Text string
}

// AskUser returns the error of a tool that cannot continue without the user. The other tools of the round still
// run. Then the turn ends with the question, and the next turn of the session answers it (LP-16).
func AskUser(question string) error { return &questionError{question} }

type questionError struct{ question string }

func (q *questionError) Error() string { return "the user is asked: " + q.question }

// Question returns the question of a tool to the user, and whether there is one.
func Question(err error) (string, bool) {
	if a, ok := errors.AsType[*questionError](err); ok {
		return a.question, true
	}
	return "", false
}

// Starter is implemented by tools that own resources. An agent starts them when it starts
// and closes them when it closes, in reverse order (LC-30).
type Starter interface {
	// Start acquires the resources. If it fails it has released what it acquired.
	Start(ctx context.Context) error
	// Close releases them. It is called once for each successful Start, when no call of the tool is running. Start
	// may follow.
	Close() error
}

// MaxName is the longest name of a tool, in characters.
const MaxName = 64

// namePattern is accepted by all providers of models.
var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

func checkName(name string) error {
	if namePattern.MatchString(name) {
		return nil
	}
	return failure.Newf(failure.AgentValidation, "tool.New",
		"tool name %q: use 1 to %d letters, digits, underscores and hyphens", name, MaxName)
}
