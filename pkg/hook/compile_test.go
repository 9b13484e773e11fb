package hook_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// typeChecker type-checks small sources that import this package.
type typeChecker struct {
	fset     *token.FileSet
	importer types.Importer
}

func newTypeChecker(t *testing.T) *typeChecker {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")
	out, err := list.Output()
	require.NoError(t, err)
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	fset := token.NewFileSet()
	return &typeChecker{fset, importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
}

// compile type-checks a handler of an event with the given body.
func (c *typeChecker) compile(event, given, body string) error {
	file, err := parser.ParseFile(c.fset, "handler.go", `package agent

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/hook"
)

var _ = hook.`+event+`(func(_ context.Context, x `+given+`) error {
	`+body+`
	return nil
})
`, 0)
	if err != nil {
		return err
	}
	config := types.Config{Importer: c.importer}
	_, err = config.Check("agent", c.fset, []*ast.File{file}, nil)
	return err
}

// The type checker proves what a handler can do: it can change the subject of its own event, but no data of
// another ownership tier.
func TestHandlers_CompileOnlyWithPermittedChanges(t *testing.T) {
	const (
		turn, request, reply, failed = "*hook.Turn", "*hook.LLMRequest", "*hook.LLMReply", "*hook.LLMFailure"
		round, call, done            = "*hook.Round", "*hook.Call", "*hook.Completion"
	)
	c := newTypeChecker(t)
	for _, tc := range []struct{ event, given, body, wrong string }{
		// What each handler may do.
		{"AfterUserInput", turn, `x.Add(x.Messages()...); x.State().Set("_n", 1); x.Memory().Set("n", 1)`, ""},
		{"BeforeLLM", request, `x.System += "!"; x.Replace(nil); x.Respond("I know")`, ""},
		{"AfterLLM", reply, `x.Text = ""; x.ToolCalls = x.ToolCalls[:0]`, ""},
		{"OnLLMError", failed, `x.Respond("later")`, ""},
		{"BeforeTools", round, `x.Stop("enough")`, ""},
		{"BeforeEachTool", call, `x.Arguments = "{}"; x.Answer("42"); x.Reject("no")`, ""},
		{"BeforeEachTool", call, `if a, ok := x.Answered(); !ok || a.Late { x.Wait("may it?", x.Until) }`, ""},
		{"AfterEachTool", call, `x.Text = "shorter"`, ""},
		{"OnComplete", done, `_, _ = x.Transcript(); _, _ = x.Trace().Get("trace_id")`, ""},

		// Only Add and Replace change messages.
		{"BeforeEachTool", call, `x.SetMessages(nil)`, "x.SetMessages undefined"},
		{"BeforeEachTool", call, `x.Append(x.Messages()[0])`, "x.Append undefined"},
		{"BeforeEachTool", call, `x.Turn.conversation = nil`, "cannot refer to unexported field"},
		{"AfterTools", round, `x.Release()`, "x.Release undefined"},
		// Only the loop decides which calls may wait, and sets their answers.
		{"AfterTools", round, `x.Wait("no", nil)`, "x.Wait undefined"},
		{"BeforeEachTool", call, `x.waiting.Over = true`, "x.waiting undefined"},
		// Only the handlers of a model event can access its request and reply.
		{"AfterTools", round, `x.ToolCalls = nil`, "x.ToolCalls undefined"},
		{"AfterLLM", reply, `x.Respond("no")`, "x.Respond undefined"},
		{"BeforeEachTool", call, `x.System = ""`, "x.System undefined"},
		{"BeforeIteration", turn, `x.Answer("42")`, "x.Answer undefined"},
		{"AfterTools", call, ``, "cannot use (func"},
		// The trace belongs to the orchestrator.
		{"AfterUserInput", turn, `x.Trace().Set("trace_id", "mine")`, "Set undefined"},
		{"AfterUserInput", turn, `x.Trace().values["trace_id"] = "mine"`, "cannot refer to unexported field"},
		{"AfterUserInput", turn, `x.Info().TraceID = "mine"`, "cannot assign"},
		// Stored state changes only by a request.
		{"AfterUserInput", turn, `x.Memory().changes = nil`, "cannot refer to unexported field"},
		{"AfterUserInput", turn, `x.Memory().store.State(nil)`, "cannot refer to unexported field"},
		// Events cannot be changed.
		{"AfterUserInput", turn, `x.Usage().InputTokens = 0`, "cannot assign"},
		{"AfterUserInput", turn, `x.Forward(nil)`, "x.Forward undefined"},
		// No handler can reach the Control of a turn.
		{"AfterUserInput", turn, `_ = (*hook.Control)(x)`, "cannot convert"},
		{"AfterUserInput", turn, `_ = &hook.Control{nil, nil, nil, nil, x}`, "implicit assignment to unexported field"},
		{"AfterUserInput", turn, `x.Control()`, "x.Control undefined"},
	} {
		t.Run(tc.event+" "+tc.body, func(t *testing.T) {
			err := c.compile(tc.event, tc.given, tc.body)
			if tc.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.wrong)
		})
	}
}
