package tool

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Methods makes tools of the methods of a value, in the order of their names. It takes the methods that docs
// names; the model reads the first paragraph of each description. Other methods are not tools. Each method has the
// form of the function of Func,
//
//	func (o *Orders) FindOrder(ctx context.Context, in Query) (Order, error)
//
// with a struct of arguments, and becomes the tool that Func would make, here find_order. The value is used by
// several goroutines at once. Modes: agent_validation (CO-60).
func Methods(v any, docs map[string]string) ([]Tool, error) {
	var all []Tool
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		made, err := newMethodTool(v, name, docs[name])
		if err != nil {
			return nil, err
		}
		all = append(all, made)
	}
	return all, nil
}

// newMethodTool returns the tool of one method.
func newMethodTool(v any, name, doc string) (Tool, error) {
	invalid := func(what string) *failure.Error {
		return failure.Newf(failure.AgentValidation, "tool.Methods", "method %s of %T: %s", name, v, what)
	}
	value := reflect.ValueOf(v)
	if !value.IsValid() {
		return nil, invalid("there is no value")
	}
	fn := value.MethodByName(name)
	if !fn.IsValid() {
		return nil, invalid("there is none; " + listMethods(value.Type()))
	}
	if !isToolSignature(fn.Type()) {
		return nil, invalid("its form is " + fn.Type().String() + "; want func(context.Context, a struct) (anything, error)")
	}
	snake := snakeCase(name)
	if err := checkName(snake); err != nil {
		return nil, err
	}
	description := firstParagraph(doc)
	if description == "" {
		return nil, invalid(noDescriptionText)
	}
	in := fn.Type().In(1)
	schema, text, err := inferSchema(in)
	if err != nil {
		return nil, invalid(err.Error()).Because(err)
	}
	return &funcTool[json.RawMessage, any]{
		spec:   llm.ToolSpec{Name: snake, Description: description, Schema: text},
		schema: schema,
		fn: func(ctx context.Context, args json.RawMessage) (any, error) {
			decoded := reflect.New(in)
			if err := json.Unmarshal(args, decoded.Interface()); err != nil {
				return nil, schema.newArgumentsError(snake, err.Error(), args)
			}
			out := fn.Call([]reflect.Value{reflect.ValueOf(ctx), decoded.Elem()})
			err, _ := reflect.TypeAssert[error](out[1])
			return out[0].Interface(), err
		},
	}, nil
}

var (
	contextType = reflect.TypeFor[context.Context]()
	errorType   = reflect.TypeFor[error]()
)

// isToolSignature reports whether a method, without its receiver, has the signature of a tool.
func isToolSignature(t reflect.Type) bool {
	return t.NumIn() == 2 && t.In(0) == contextType && t.In(1).Kind() == reflect.Struct && t.NumOut() == 2 && t.Out(1) == errorType
}

// listMethods returns a text for error messages: the methods whose names are similar.
func listMethods(t reflect.Type) string {
	var names []string
	for m := range t.Methods() {
		names = append(names, m.Name)
	}
	return "it has " + joinNames(names)
}

// firstParagraph returns the text before the first empty line, as one line.
func firstParagraph(doc string) string {
	var words []string
	for line := range strings.Lines(strings.TrimSpace(doc)) {
		if strings.TrimSpace(line) == "" {
			break
		}
		words = append(words, strings.Fields(line)...)
	}
	return strings.Join(words, " ")
}

// snakeCase converts a Go name to the style of models: FindOrder to find_order, HTTPGet to http_get.
func snakeCase(name string) string {
	var out strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		next := i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if i > 0 && unicode.IsUpper(r) && (next || !unicode.IsUpper(runes[i-1])) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}
