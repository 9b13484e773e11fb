package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"
)

// decode reads node into v. It first checks that every part of node fits v, so that it reports all mismatches at
// once, each with its line.
func decode(file string, node *yaml.Node, v any) []error {
	c := checker{file: file}
	c.check(node, reflect.TypeOf(v), "")
	if len(c.errs) > 0 {
		return c.errs
	}
	if err := node.Decode(v); err != nil {
		return []error{c.convertYAMLError(node, err)}
	}
	return nil
}

// checker collects the errors of a node that does not fit a Go type.
type checker struct {
	file string
	errs []error
}

func (c *checker) errorf(node *yaml.Node, format string, args ...any) {
	c.errs = append(c.errs, Place{c.file, node.Line}.Errorf(format, args...))
}

// convertYAMLError adds the place to an error that only the YAML library finds, in types with their own decoding.
func (c *checker) convertYAMLError(node *yaml.Node, err error) error {
	place := Place{c.file, node.Line}
	if t, ok := errors.AsType[*yaml.TypeError](err); ok {
		return place.Errorf("%s", strings.Join(t.Errors, "; "))
	}
	return place.Errorf("%s", strings.TrimPrefix(err.Error(), "yaml: "))
}

var (
	nodeType        = reflect.TypeFor[yaml.Node]()
	durationType    = reflect.TypeFor[time.Duration]()
	unmarshalerType = reflect.TypeFor[yaml.Unmarshaler]()
)

// check checks that node fits type t, and records each mismatch. name is the field's name in the errors.
func (c *checker) check(node *yaml.Node, t reflect.Type, name string) {
	node = resolveAlias(node)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nodeType, t.Kind() == reflect.Interface, reflect.PointerTo(t).Implements(unmarshalerType):
		return
	case node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null":
		return // null keeps the default
	case t == durationType:
		if _, err := time.ParseDuration(node.Value); node.Kind != yaml.ScalarNode || err != nil {
			c.errorf(node, "%s: want a duration such as 30s or 5m, got %s", name, describeNode(node))
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		c.checkStruct(node, t, name)
	case reflect.Map:
		c.checkMap(node, t, name)
	case reflect.Slice, reflect.Array:
		if node.Kind != yaml.SequenceNode {
			c.errorf(node, "%s: want a list, got %s", name, describeNode(node))
			return
		}
		for i, item := range node.Content {
			c.check(item, t.Elem(), fmt.Sprintf("%s[%d]", name, i))
		}
	default:
		if want := wantedScalar(node, t); want != "" {
			c.errorf(node, "%s: want %s, got %s", name, want, describeNode(node))
		}
	}
}

func (c *checker) checkStruct(node *yaml.Node, t reflect.Type, name string) {
	fields := yamlFields(t)
	names := slices.Sorted(maps.Keys(fields))
	if !c.checkMapping(node, name, "fields", "; there are "+strings.Join(names, ", ")) {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		field, ok := fields[key.Value]
		if !ok {
			c.errorf(key, "unknown field %q; %s", joinPath(name, key.Value), suggestion(key.Value, names))
			continue
		}
		c.check(node.Content[i+1], field, joinPath(name, key.Value))
	}
}

func (c *checker) checkMap(node *yaml.Node, t reflect.Type, name string) {
	if !c.checkMapping(node, name, "a mapping", "") {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		c.check(node.Content[i+1], t.Elem(), joinPath(name, node.Content[i].Value))
	}
}

// checkMapping reports whether node is a mapping, and records an error otherwise. It also records duplicate keys.
// want and more describe in the error what is expected.
func (c *checker) checkMapping(node *yaml.Node, name, want, more string) bool {
	if node.Kind != yaml.MappingNode {
		if name == "" {
			name = "document"
		}
		c.errorf(node, "%s: want %s, got %s%s", name, want, describeNode(node), more)
		return false
	}
	first := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if line, ok := first[key.Value]; ok {
			c.errorf(key, "%q occurs twice; first in line %d", joinPath(name, key.Value), line)
		}
		first[key.Value] = key.Line
	}
	return true
}

// yamlFields returns the types of a struct's fields by their YAML names.
func yamlFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for f := range t.Fields() {
		tag, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case tag == "-" || !f.IsExported():
		case strings.Contains(options, "inline"):
			maps.Copy(fields, yamlFields(f.Type))
		default:
			fields[cmp.Or(tag, strings.ToLower(f.Name))] = f.Type
		}
	}
	return fields
}

// wantedScalar describes the value that type t expects, or returns "" if node fits t.
func wantedScalar(node *yaml.Node, t reflect.Type) string {
	tag := ""
	if node.Kind == yaml.ScalarNode {
		tag = node.ShortTag()
	}
	fits := node.Kind == yaml.ScalarNode && node.Decode(reflect.New(t).Interface()) == nil
	switch t.Kind() {
	case reflect.String:
		if tag == "!!bool" || !fits {
			return "a text"
		}
	case reflect.Bool:
		if !fits {
			return "true or false"
		}
	case reflect.Float32, reflect.Float64:
		if !fits {
			return "a number"
		}
	default:
		if tag != "!!int" || !fits {
			return "a whole number"
		}
	}
	return ""
}

func describeNode(node *yaml.Node) string {
	switch node.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping"
	default:
		return fmt.Sprintf("%q", node.Value)
	}
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// suggestion returns a hint for an unknown word: the most similar known word, or all known words if none is
// similar.
func suggestion(word string, known []string) string {
	if near := Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "there are " + strings.Join(known, ", ")
}

// Nearest returns the known word that is most similar to word, or "" if none is similar enough to be a probable
// misspelling.
func Nearest(word string, known []string) string {
	near, best := "", 1+max(2, len(word)/3)
	for _, k := range known {
		if d := levenshtein.ComputeDistance(strings.ToLower(word), strings.ToLower(k)); d < best && d < max(len(k), len(word)) {
			near, best = k, d
		}
	}
	return near
}
