package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Schema validates the arguments of a tool before the tool runs. It is safe for concurrent use.
type Schema struct{ resolved *jsonschema.Resolved }

// maxSchemaParts is the maximum number of parts of a schema. A part counts as often as it is referenced.
const maxSchemaParts = 20_000

// NewSchema parses a JSON Schema of draft 2020-12 or 7. The schema may reference neither other schemas nor itself.
// It may come from an untrusted server, so its size is limited. Otherwise a schema that contains itself, or whose
// paths multiply without end, could crash the process.
func NewSchema(text json.RawMessage) (*Schema, error) {
	var s jsonschema.Schema
	var parts any
	if err := errors.Join(json.Unmarshal(text, &s), json.Unmarshal(text, &parts)); err != nil {
		return nil, fmt.Errorf("the schema cannot be read: %w", err)
	}
	if err := (&schemaWalk{root: parts}).visit(parts); err != nil {
		return nil, err
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the schema does not resolve: %w", err)
	}
	return &Schema{resolved}, nil
}

// schemaWalk visits all parts of a schema and follows its references.
type schemaWalk struct {
	root           any
	openReferences []string // references on the current path, to detect cycles
	visitedCount   int
}

func (w *schemaWalk) visit(part any) error {
	if w.visitedCount++; w.visitedCount > maxSchemaParts {
		return fmt.Errorf("the schema has more than %d parts", maxSchemaParts)
	}
	switch part := part.(type) {
	case []any:
		for _, p := range part {
			if err := w.visit(p); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, p := range part {
			ref, isRef := p.(string)
			isRef = isRef && (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef")
			if err := w.visit(p); err != nil {
				return err
			}
			if !isRef {
				continue
			}
			if err := w.followReference(ref); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *schemaWalk) followReference(ref string) error {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok || path != "" && path[0] != '/' {
		return fmt.Errorf("the schema refers to %q, and only references such as #/$defs/name are followed", ref)
	}
	if slices.Contains(w.openReferences, ref) {
		return fmt.Errorf("the schema holds itself, at %q", ref)
	}
	target := w.root
	for _, key := range strings.Split(path, "/")[1:] {
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		switch t := target.(type) {
		case map[string]any:
			target = t[key]
		case []any:
			n, err := strconv.Atoi(key)
			if err != nil || n < 0 || n >= len(t) {
				return fmt.Errorf("the schema refers to %q, which is not there", ref)
			}
			target = t[n]
		default:
			return fmt.Errorf("the schema refers to %q, which is not there", ref)
		}
	}
	w.openReferences = append(w.openReferences, ref)
	err := w.visit(target)
	w.openReferences = w.openReferences[:len(w.openReferences)-1]
	return err
}

// Check returns the arguments as a JSON object if they match the schema. Missing arguments count as an empty
// object. If they do not match, the error is agent_validation, with a hint that describes the required form
// (CO-37).
func (s *Schema) Check(tool string, args json.RawMessage) (json.RawMessage, error) {
	args = bytes.TrimSpace(args)
	if len(args) == 0 || bytes.Equal(args, []byte("null")) {
		args = json.RawMessage("{}")
	}
	var object map[string]any
	if err := json.Unmarshal(args, &object); err != nil {
		return nil, s.newArgumentsError(tool, "they are not a JSON object", nil).Because(err)
	}
	if err := s.resolved.Validate(object); err != nil {
		return nil, s.newArgumentsError(tool, err.Error(), args)
	}
	return args, nil
}

// newArgumentsError returns the error for invalid arguments, with a hint that describes the required form.
func (s *Schema) newArgumentsError(tool, why string, args json.RawMessage) *failure.Error {
	return failure.Newf(failure.AgentValidation, "tool.Call", "the arguments of %s do not fit: %s %s", tool, why, s.Hint(args))
}

// Hint lists, in parentheses, the required parameters, all parameters, and the parameters that args contains
// (CO-37).
func (s *Schema) Hint(args json.RawMessage) string {
	var provided map[string]json.RawMessage
	_ = json.Unmarshal(args, &provided) // arguments that are not an object provide no parameter
	schema := s.resolved.Schema()
	return fmt.Sprintf("(required: %s; all: %s; provided: %s)",
		joinNames(slices.Sorted(slices.Values(schema.Required))),
		joinNames(slices.Sorted(maps.Keys(schema.Properties))),
		joinNames(slices.Sorted(maps.Keys(provided))))
}

func joinNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// TruncateResult cuts a result to at most MaxResult bytes. A result that was cut ends with a note that says so
// (CO-39).
func TruncateResult(text string) string {
	if len(text) <= MaxResult {
		return text
	}
	mark := fmt.Sprintf("… (cut: it has %d bytes)", len(text))
	return conversation.Truncate(text, MaxResult-len(mark)) + mark
}
