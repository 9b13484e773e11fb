// Package tool is the contract between agents and the things that a model can ask them to
// do. A tool is a Go function with typed arguments (Func) or any implementation of Tool.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Tool is something that a model can ask for. Implementations are safe for concurrent
// use: an agent runs several steps at once.
type Tool interface {
	// Spec is what the model is told. It is the same each time.
	Spec() llm.ToolSpec
	// Call runs the tool. The arguments are as the model wrote them, so they may be no
	// valid JSON or not fit the schema. An error does not end the step: its text is what
	// the model reads instead of a result (CO-35). Of a failure.Error that is the message.
	Call(ctx context.Context, args json.RawMessage) (Result, error)
}

// Result is what a tool gives back.
type Result struct {
	// Text is for the model, and for the steps after this one. It is empty when the tool
	// has nothing to tell; then it leaves no observation.
	Text string
}

// AskUser returns the error of a tool that cannot go on without the user. The tools beside it
// still run; then the turn ends with the question, and the next turn of the session answers
// it (LP-16).
func AskUser(question string) error { return &asks{question} }

type asks struct{ question string }

func (a *asks) Error() string { return "the user is asked: " + a.question }

// Question returns what a tool asks the user, and whether it does.
func Question(err error) (string, bool) {
	if a, ok := errors.AsType[*asks](err); ok {
		return a.question, true
	}
	return "", false
}

// Starter is implemented by tools that own resources. An agent starts them when it starts
// and closes them when it closes, in reverse order (LC-30).
type Starter interface {
	// Start takes the resources. When it fails it has freed what it took.
	Start(ctx context.Context) error
	// Close frees them. It is called once for each Start that succeeded; no call of the
	// tool is under way then. Start may follow.
	Close() error
}

// MaxName is the longest name of a tool, in characters.
const MaxName = 64

// namePattern is what all providers of models accept.
var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

func checkName(name string) error {
	if namePattern.MatchString(name) {
		return nil
	}
	return failure.Newf(failure.AgentValidation, "tool.New",
		"tool name %q: use 1 to %d letters, digits, underscores and hyphens", name, MaxName)
}
