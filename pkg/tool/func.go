package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Func makes a tool of a Go function. In is a struct; its JSON Schema is inferred from its
// json tags, and a `jsonschema:"…"` tag describes a field. Fields without omitempty or
// omitzero are required, others than those of In are refused.
//
// Arguments are checked before fn runs. Those that do not fit give agent_validation with a
// hint of what the schema wants (CO-37). An error of Func itself is agent_validation too.
func Func[In any](name, description string, fn func(context.Context, In) (string, error)) (Tool, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	invalid := func(what string) *failure.Error {
		return failure.Newf(failure.AgentValidation, "tool.Func", "tool %s: %s", name, what)
	}
	if strings.TrimSpace(description) == "" {
		return nil, invalid("the description is empty; the model chooses tools by it")
	}
	if fn == nil {
		return nil, invalid("there is no function")
	}
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		return nil, invalid("the arguments have no JSON Schema").Because(err)
	}
	if schema.Type != "object" {
		return nil, invalid("the arguments must be a struct")
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, invalid("the schema of the arguments does not resolve").Because(err)
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, invalid("the schema of the arguments cannot be written").Because(err)
	}
	return &typed[In]{
		spec:   llm.ToolSpec{Name: name, Description: description, Schema: text},
		schema: resolved,
		fn:     fn,
	}, nil
}

// typed is a Tool that calls a function.
type typed[In any] struct {
	spec   llm.ToolSpec
	schema *jsonschema.Resolved
	fn     func(context.Context, In) (string, error)
}

func (t *typed[In]) Spec() llm.ToolSpec { return t.spec }

func (t *typed[In]) Call(ctx context.Context, args json.RawMessage) (Result, error) {
	in, err := t.decode(args)
	if err != nil {
		return Result{}, err
	}
	text, err := t.fn(ctx, in)
	return Result{Text: text}, err
}

// decode checks the arguments against the schema. No arguments at all are an empty object.
func (t *typed[In]) decode(args json.RawMessage) (In, error) {
	var in In
	args = bytes.TrimSpace(args)
	if len(args) == 0 || bytes.Equal(args, []byte("null")) {
		args = json.RawMessage("{}")
	}
	var object map[string]any
	if err := json.Unmarshal(args, &object); err != nil {
		return in, t.refuse("they are not a JSON object", nil).Because(err)
	}
	if err := t.schema.Validate(object); err != nil {
		return in, t.refuse(err.Error(), object)
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return in, t.refuse(err.Error(), object)
	}
	return in, nil
}

// refuse tells the model what was wrong, and what the schema wants.
func (t *typed[In]) refuse(why string, provided map[string]any) *failure.Error {
	schema := t.schema.Schema()
	return failure.Newf(failure.AgentValidation, "tool.Call",
		"the arguments of %s do not fit: %s (required: %s; all: %s; provided: %s)",
		t.spec.Name, why,
		list(slices.Sorted(slices.Values(schema.Required))),
		list(slices.Sorted(maps.Keys(schema.Properties))),
		list(slices.Sorted(maps.Keys(provided))))
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
