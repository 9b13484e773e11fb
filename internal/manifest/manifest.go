// Package manifest reads YAML declarations. All kinds have the same form: documents of apiVersion troupe.dev/v1
// with a kind, a name and a spec. The package is strict: an unknown field is an error that gives file, line and
// the most similar known name.
package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"
)

// APIVersion is the value of the field apiVersion in every document.
const APIVersion = "troupe.dev/v1"

// These are the limits of a file and of each of its documents. An alias counts as all the values that it stands
// for.
const (
	MaxFileBytes = 1 << 20
	MaxValues    = 100_000
	MaxDepth     = 100
)

// The kinds.
const (
	KindAgent    = "Agent"
	KindWorkflow = "Workflow"
	KindTest     = "Test" // expected behaviour of an agent; a mesh does not run it
)

var kinds = []string{KindAgent, KindWorkflow, KindTest}

// Document is one declaration from a YAML file: its kind, its name and its spec.
type Document struct {
	File string // file name within the folder
	Line int    // first line of the document, counted from 1
	Kind string
	Name string // a DNS label, unique for its kind in the folder

	spec *yaml.Node // a mapping, or nil
}

// Error describes one mistake in a manifest and where it is.
type Error struct {
	Place
	Message string
}

// Error returns "file:line: message".
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Place, e.Message) }

// Place is a line of a file.
type Place struct {
	File string
	Line int
}

// String is "file:line".
func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Errorf returns an *Error at this place.
func (p Place) Errorf(format string, args ...any) *Error {
	return &Error{p, fmt.Sprintf(format, args...)}
}

// Load reads all *.yaml and *.yml files at the root of fsys, in the order of their names. A file may hold any
// number of documents. If some documents are invalid, Load returns the valid ones and an error that joins all
// mistakes, mostly of type *Error. A folder without a document is an error.
func Load(fsys fs.FS) ([]Document, error) {
	names, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("manifest: the folder cannot be read: %w", err)
	}
	var all []Document
	var wrong []error
	for _, entry := range names {
		if ext := path.Ext(entry.Name()); entry.IsDir() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		docs, errs := loadFile(fsys, entry.Name())
		all, wrong = append(all, docs...), append(wrong, errs...)
	}
	wrong = append(wrong, duplicateErrors(all)...)
	if len(all) == 0 && len(wrong) == 0 {
		return nil, fmt.Errorf("manifest: the folder has no document; put a *.yaml file with apiVersion: %s and kind: %s into it",
			APIVersion, KindAgent+" or "+KindWorkflow)
	}
	return all, errors.Join(wrong...)
}

// Select returns the documents of one kind, in their original order.
func Select(docs []Document, kind string) []Document {
	return slices.DeleteFunc(slices.Clone(docs), func(d Document) bool { return d.Kind != kind })
}

func duplicateErrors(docs []Document) []error {
	var wrong []error
	first := map[[2]string]Place{}
	for _, d := range docs {
		key := [2]string{d.Kind, d.Name}
		if before, ok := first[key]; ok {
			wrong = append(wrong, d.place().Errorf("%s %q is declared before, at %s", d.Kind, d.Name, before))
			continue
		}
		first[key] = d.place()
	}
	return wrong
}

func (d Document) place() Place { return Place{d.File, d.Line} }

var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckName returns an error unless name is a valid document name. The error says what is valid.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q: use a-z, 0-9 and hyphens, at most 63 characters, no hyphen at the ends", name)
	}
	return nil
}

// envelope holds the fields that documents of every kind have.
type envelope struct {
	APIVersion string    `yaml:"apiVersion"`
	Kind       string    `yaml:"kind"`
	Metadata   metadata  `yaml:"metadata"`
	Spec       yaml.Node `yaml:"spec"`
}

type metadata struct {
	Name string `yaml:"name"`
}
