package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// loadFile reads the documents of one file and skips empty ones.
func loadFile(fsys fs.FS, name string) ([]Document, []error) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, []error{Place{name, 1}.Errorf("cannot be read: %v", err)}
	}
	if len(text) > MaxFileBytes {
		return nil, []error{Place{name, 1}.Errorf("the file has more than %d bytes; split it", MaxFileBytes)}
	}
	var all []Document
	var wrong []error
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return all, wrong
		}
		if err != nil {
			return all, append(wrong, syntaxError(name, err))
		}
		root := node.Content[0]
		if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
			continue
		}
		if err := checkSize(name, root); err != nil {
			wrong = append(wrong, err)
			continue
		}
		doc, errs := readEnvelope(name, root)
		if len(errs) == 0 {
			all = append(all, doc)
		}
		wrong = append(wrong, errs...)
	}
}

// yamlPlace matches the line number at the beginning of an error of the YAML library.
var yamlPlace = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func syntaxError(file string, err error) error {
	place := Place{file, 1}
	if m := yamlPlace.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
		place.Line, err = atoi(m[1]), errors.New(strings.TrimPrefix(err.Error(), m[0]))
	}
	return place.Errorf("this is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
}

func atoi(digits string) int {
	n, _ := strconv.Atoi(digits) // the pattern matches digits only
	return n
}

// readEnvelope reads the fields that all documents have.
func readEnvelope(file string, root *yaml.Node) (Document, []error) {
	var env envelope
	if errs := decode(file, root, &env); len(errs) > 0 {
		return Document{}, errs
	}
	doc := Document{File: file, Line: root.Line, Kind: env.Kind, Name: env.Metadata.Name}
	var wrong []error
	at := func(keys ...any) Place { return Place{file, lineOf(root, keys)} }
	if env.APIVersion != APIVersion {
		wrong = append(wrong, at("apiVersion").Errorf("apiVersion is %q; want %q", env.APIVersion, APIVersion))
	}
	if !slices.Contains(kinds, env.Kind) {
		wrong = append(wrong, at("kind").Errorf("unknown kind %q; %s", env.Kind, suggestion(env.Kind, kinds)))
	}
	if err := CheckName(env.Metadata.Name); err != nil {
		wrong = append(wrong, at("metadata", "name").Errorf("metadata.name is %v", err))
	}
	switch spec := resolveAlias(&env.Spec); {
	case spec.IsZero() || spec.ShortTag() == "!!null":
		wrong = append(wrong, at().Errorf("spec is missing"))
	case spec.Kind != yaml.MappingNode:
		wrong = append(wrong, at("spec").Errorf("spec: want fields, got %s", describeNode(spec)))
	default:
		doc.spec = spec
	}
	return doc, wrong
}

// Decode reads the spec into v, a pointer to a struct with yaml tags. With keys it reads only a part of the spec:
// a string selects a field and an int selects an item. This serves fields of type yaml.Node whose real type
// depends on other fields. A missing part leaves v unchanged. The error joins all mismatches, each of type *Error.
func (d Document) Decode(v any, keys ...any) error {
	node, ok := findNode(d.spec, keys)
	if !ok {
		return nil
	}
	return errors.Join(decode(d.File, node, v)...)
}

// Digest returns a digest of the spec. It does not depend on comments, the order of fields, the YAML notation or
// the place of the document.
func (d Document) Digest() string {
	var spec any
	var text []byte
	err := d.spec.Decode(&spec)
	if err == nil {
		text, err = yaml.Marshal(spec)
	}
	if err != nil { // Decode rejects such a spec, too
		text = []byte(err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// FieldTexts returns every text inside the fields with the given name, at any depth of the spec.
func (d Document) FieldTexts(field string) []string {
	return collectTexts(d.spec, field, false, nil)
}

func collectTexts(node *yaml.Node, field string, below bool, all []string) []string {
	switch node = resolveAlias(node); {
	case node == nil:
	case node.Kind == yaml.ScalarNode && below:
		all = append(all, node.Value)
	case node.Kind == yaml.SequenceNode:
		for _, item := range node.Content {
			all = collectTexts(item, field, below, all)
		}
	case node.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			all = collectTexts(node.Content[i+1], field, below || node.Content[i].Value == field, all)
		}
	}
	return all
}

// PlaceOf returns the place of the part of the spec that the keys select. If the part is missing, it returns the
// place of the nearest enclosing part.
func (d Document) PlaceOf(keys ...any) Place {
	if d.spec == nil || len(keys) == 0 {
		return d.place()
	}
	return Place{d.File, lineOf(d.spec, keys)}
}

// findNode follows the keys as far as they exist and returns the last node. ok reports whether every key exists.
func findNode(node *yaml.Node, keys []any) (found *yaml.Node, ok bool) {
	found, _, ok = followKeys(node, keys)
	return found, ok
}

// lineOf follows the keys as far as they exist and returns the line of the last one. The line of a field is the
// line of its name.
func lineOf(node *yaml.Node, keys []any) int {
	_, line, _ := followKeys(node, keys)
	return line
}

func followKeys(node *yaml.Node, keys []any) (_ *yaml.Node, line int, ok bool) {
	node = resolveAlias(node)
	if node == nil {
		return nil, 0, false
	}
	line = node.Line
	for _, key := range keys {
		next, at := childNode(node, key)
		if next == nil {
			return node, line, false
		}
		node, line = resolveAlias(next), at
	}
	return node, line, true
}

// childNode returns the value under a key of a mapping or sequence. The line is the one of the key in a mapping,
// and of the value in a sequence.
func childNode(node *yaml.Node, key any) (*yaml.Node, int) {
	switch key := key.(type) {
	case string:
		if node.Kind != yaml.MappingNode {
			return nil, 0
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	case int:
		if node.Kind == yaml.SequenceNode && key >= 0 && key < len(node.Content) {
			return node.Content[key], node.Content[key].Line
		}
	}
	return nil, 0
}

// resolveAlias returns the node that an alias stands for, and any other node unchanged.
func resolveAlias(node *yaml.Node) *yaml.Node {
	for node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node
}
