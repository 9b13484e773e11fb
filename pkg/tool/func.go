package tool

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// noDescriptionText is the error text for a tool without a description.
const noDescriptionText = "the description is empty; the model chooses tools by it"

// Func makes a tool of a Go function. In is a struct; its JSON Schema is inferred from its json tags, and a
// `jsonschema:"…"` tag describes a field. Fields without omitempty or omitzero are required, a pointer may be
// null, and an Enum lists its values. Unknown fields are rejected.
//
// Out is what the model reads: a string as it is, a Result with its files, anything else as JSON of at most MaxResult
// bytes, which clients get as the structured result (CO-39). A value that cannot be JSON, such as NaN or a cycle, is
// agent_logic; the message says that the tool did run.
//
// Arguments are checked before fn runs. Arguments that do not match are agent_validation, with a hint of what the
// schema wants (CO-37). An error of Func itself is agent_validation too.
func Func[In, Out any](name, description string, fn func(context.Context, In) (Out, error)) (Tool, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	invalid := func(what string) *failure.Error {
		return failure.Newf(failure.AgentValidation, "tool.Func", "tool %s: %s", name, what)
	}
	if strings.TrimSpace(description) == "" {
		return nil, invalid(noDescriptionText)
	}
	if fn == nil {
		return nil, invalid("there is no function")
	}
	schema, text, err := inferSchema(reflect.TypeFor[In]())
	if err != nil {
		return nil, invalid(err.Error()).Because(err)
	}
	return &funcTool[In, Out]{
		spec:   llm.ToolSpec{Name: name, Description: description, Schema: text},
		schema: schema,
		fn:     fn,
	}, nil
}

// funcTool is the Tool that Func and Methods return.
type funcTool[In, Out any] struct {
	spec   llm.ToolSpec
	schema *Schema
	fn     func(context.Context, In) (Out, error)
}

func (t *funcTool[In, Out]) Spec() llm.ToolSpec { return t.spec }

func (t *funcTool[In, Out]) Call(ctx context.Context, args json.RawMessage) (Result, error) {
	in, err := t.decode(args)
	if err != nil {
		return Result{}, err
	}
	out, err := t.fn(ctx, in)
	switch out := any(out).(type) {
	case string:
		return Result{Text: out}, err
	case Result:
		return out, err
	}
	if err != nil {
		return Result{}, err
	}
	text, err := t.encode(out)
	return Result{Text: TruncateResult(text), Structured: json.RawMessage(text)}, err
}

// encode returns a result as JSON.
func (t *funcTool[In, Out]) encode(out Out) (string, error) {
	var text strings.Builder
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	if err := to.Encode(out); err != nil {
		return "", failure.Newf(failure.AgentLogic, "tool.Call",
			"%s did run, but its result is no JSON: %s; return finite numbers, and nothing that holds itself", t.spec.Name, err).Because(err)
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}

// decode checks the arguments against the schema and decodes them into the argument type.
func (t *funcTool[In, Out]) decode(args json.RawMessage) (In, error) {
	var in In
	args, err := t.schema.Check(t.spec.Name, args)
	if err != nil {
		return in, err
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return in, t.schema.newArgumentsError(t.spec.Name, err.Error(), args)
	}
	return in, nil
}
