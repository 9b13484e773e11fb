package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// Enum is implemented by argument types that have few values, such as a string type with constants. The JSON
// Schema lists the values. So the model chooses among them, and a call with another value is rejected (CO-60).
type Enum interface {
	// Enum returns all values. It must return the same values each time, even for the zero value.
	Enum() []any
}

// inferSchema returns the JSON Schema of an argument type, parsed and as text.
func inferSchema(t reflect.Type) (*Schema, json.RawMessage, error) {
	enums := map[reflect.Type]*jsonschema.Schema{}
	if err := findEnums(t, enums, map[reflect.Type]bool{}); err != nil {
		return nil, nil, err
	}
	inferred, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: enums})
	if err != nil {
		return nil, nil, fmt.Errorf("the arguments have no JSON Schema: %w", err)
	}
	if inferred.Type != "object" {
		return nil, nil, errors.New("the arguments must be a struct")
	}
	allowNull(inferred)
	resolved, err := inferred.Resolve(nil)
	if err != nil {
		return nil, nil, fmt.Errorf("the schema of the arguments does not resolve: %w", err)
	}
	text, err := json.Marshal(inferred)
	if err != nil {
		return nil, nil, fmt.Errorf("the schema of the arguments cannot be written: %w", err)
	}
	return &Schema{resolved}, text, nil
}

// findEnums collects the schemas of all Enum types inside t.
func findEnums(t reflect.Type, found map[reflect.Type]*jsonschema.Schema, seen map[reflect.Type]bool) error {
	if seen[t] {
		return nil
	}
	seen[t] = true
	if t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface {
		if e, ok := reflect.TypeAssert[Enum](reflect.New(t)); ok {
			s, err := jsonschema.ForType(t, nil)
			if err != nil {
				return fmt.Errorf("the arguments have no JSON Schema: %w", err)
			}
			if s.Enum = e.Enum(); len(s.Enum) == 0 {
				return fmt.Errorf("%s lists no values in its Enum", t)
			}
			found[t] = s
			return nil
		}
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return findEnums(t.Elem(), found, seen)
	case reflect.Struct:
		for field := range t.Fields() {
			if !field.IsExported() && !field.Anonymous {
				continue
			}
			if err := findEnums(field.Type, found, seen); err != nil {
				return err
			}
		}
	default:
	}
	return nil
}

// allowNull adds null to the schema of an Enum behind a pointer, because every pointer may be null.
func allowNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Enum) > 0 && slices.Contains(s.Types, "null") {
		s.Enum = append(slices.Clip(s.Enum), nil)
	}
	for _, p := range s.Properties {
		allowNull(p)
	}
	allowNull(s.Items)
	allowNull(s.AdditionalProperties)
}
