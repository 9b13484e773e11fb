package conformancehost

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// testAgentName is the agent name that conformance.proto requires.
const testAgentName = "conformance"

func newTestAgent(capacity int) (*agent.Agent, error) {
	look, err := tool.Func("look", "Finds a word.", func(_ context.Context, in struct {
		Word string `json:"word"`
	},
	) (string, error) {
		return "found " + in.Word, nil
	})
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{
		Name: testAgentName, Version: "test", Model: commandModel{}, Capacity: capacity, Tools: []tool.Tool{look},
		Handlers: []hook.Handler{hook.AfterUserInput(emitCustomEvent)},
	})
}

// emitCustomEvent executes the command emit.
func emitCustomEvent(_ context.Context, turn *hook.Turn) error {
	said, ok := strings.CutPrefix(turn.Info().Prompt, "emit ")
	if !ok {
		return nil
	}
	name, data, _ := strings.Cut(said, " ")
	return turn.Emit(name, json.RawMessage(data))
}

// commandModel is the model of the test agent. It executes the command in the user's last message, as
// conformance.proto describes.
type commandModel struct{}

// Name implements llm.Model.
func (commandModel) Name() string { return "test/obedient" }

// Generate implements llm.Model.
func (commandModel) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		said := lastUserText(req.Messages)
		verb, rest, _ := strings.Cut(said, " ")
		switch verb {
		case "say":
			yield(llm.Delta{Text: rest}, nil)
		case "count":
			streamNumbers(rest, yield)
		case "sleep":
			if err := parseAndSleep(ctx, rest); err != nil {
				yield(llm.Delta{}, err)
				return
			}
			yield(llm.Delta{Text: "slept " + rest}, nil)
		case "fail":
			yield(llm.Delta{}, failure.New(failure.AgentLogic, "conformance", "it was told to fail"))
		case "panic":
			panic("it was told to panic") //nolint:forbidigo // the kit tests panics
		case "own":
			answer := "does not own"
			if owner, _ := ownership.OwnerOf(rest); owner == ownership.Agent {
				answer = "owns"
			}
			yield(llm.Delta{Text: answer}, nil)
		case "look":
			if found := req.Messages[len(req.Messages)-1]; found.Role == conversation.RoleTool {
				yield(llm.Delta{Text: found.Text}, nil)
				return
			}
			arguments, _ := json.Marshal(map[string]string{"word": rest})
			yield(llm.Delta{ToolCalls: []conversation.ToolCall{{Name: "look", Arguments: string(arguments)}}}, nil)
		case "emit":
			name, _, _ := strings.Cut(rest, " ")
			yield(llm.Delta{Text: name}, nil)
		case "recall":
			yield(llm.Delta{Text: rememberedResults(req.Messages)}, nil)
		default:
			yield(llm.Delta{Text: said}, nil)
		}
	}
}

// streamNumbers streams the numbers from 1 to n, one in each delta.
func streamNumbers(n string, yield func(llm.Delta, error) bool) {
	last, err := strconv.Atoi(n)
	if err != nil {
		yield(llm.Delta{}, failure.Newf(failure.UserInvalidInput, "conformance", "count %s: want a number", n))
		return
	}
	for i := 1; i <= last; i++ {
		if !yield(llm.Delta{Text: fmt.Sprint(i)}, nil) {
			return
		}
	}
}

// rememberedResults returns the results of all tool calls in a conversation.
func rememberedResults(messages []conversation.Message) string {
	var results []string
	for _, m := range messages {
		if m.Role == conversation.RoleTool {
			results = append(results, m.Text)
		}
	}
	return cmp.Or(strings.Join(results, ", "), "nothing")
}

func parseAndSleep(ctx context.Context, duration string) error {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return failure.Newf(failure.UserInvalidInput, "conformance", "sleep %s: want a duration such as 200ms", duration)
	}
	return retry.Sleep(ctx, d)
}

func lastUserText(messages []conversation.Message) string {
	for _, m := range slices.Backward(messages) {
		if m.Role == conversation.RoleUser && m.Author == "" {
			return m.Text
		}
	}
	return ""
}
