// Package list reads the mutations that prove tests. A mutation breaks one clause of one requirement, and names the test that
// must fail because of it.
package list

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/test/overlay"
)

// Mutation is one change of the code, as it stands in a file of lists/.
type Mutation struct {
	ID      string `yaml:"id"`      // the requirement, such as LC-12
	Clause  string `yaml:"clause"`  // what the requirement says and the change breaks
	File    string `yaml:"file"`    // the changed file, relative to the root of the repository
	Find    string `yaml:"find"`    // the snippet that is replaced; it occurs once in the file
	Replace string `yaml:"replace"` // what replaces it
	Test    string `yaml:"test"`    // the package and the name of the test that must fail, such as "internal/loop TestLoop_Ends/at the limit"
}

// Name returns what a report calls the mutation.
func (m Mutation) Name() string { return m.ID + ": " + m.Clause }

// Change returns the change of the source file.
func (m Mutation) Change() overlay.Change {
	return overlay.Change{File: m.File, Find: m.Find, Replacement: m.Replace}
}

// Package returns the path of the test's package, relative to the root of the repository.
func (m Mutation) Package() string {
	pkg, _, _ := strings.Cut(m.Test, " ")
	return pkg
}

// TestName returns the name of the test, with the names of its subtests after slashes.
func (m Mutation) TestName() string {
	_, name, _ := strings.Cut(m.Test, " ")
	return name
}

var (
	validID   = regexp.MustCompile(`^(CO|LC|SO|OC|AD|LP|RA|C)-\d+[a-z]?$`)
	validTest = regexp.MustCompile(`^[a-z0-9_./-]+ Test\w+(/.+)?$`)
)

// Read returns the mutations of all YAML files in a folder, in the order of the files. It returns an error that names the
// file and the mutation if one is not complete, is there twice, or panics instead of changing what the code does.
func Read(files fs.FS) ([]Mutation, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var all []Mutation
	seen := map[string]string{}
	for _, name := range names {
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		mutations, err := decode(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for i, m := range mutations {
			if problem := m.problem(); problem != "" {
				return nil, fmt.Errorf("%s: mutation %d, %s: %s", name, i+1, m.Name(), problem)
			}
			if other := seen[m.Name()]; other != "" {
				return nil, fmt.Errorf("%s: %s is also in %s", name, m.Name(), other)
			}
			seen[m.Name()] = name
		}
		all = append(all, mutations...)
	}
	return all, nil
}

func decode(content []byte) (mutations []Mutation, err error) {
	d := yaml.NewDecoder(bytes.NewReader(content))
	d.KnownFields(true)
	if err := d.Decode(&mutations); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return mutations, nil
}

// problem returns why a mutation is not valid (empty if it is).
func (m Mutation) problem() string {
	switch {
	case !validID.MatchString(m.ID):
		return "id is not the id of a requirement, such as LC-12"
	case m.Clause == "":
		return "clause is missing: say what the requirement says and the change breaks"
	case m.File == "" || path.Clean(m.File) != m.File || strings.HasPrefix(m.File, ".."):
		return "file is not a path relative to the root of the repository"
	case strings.HasSuffix(m.File, "_test.go"):
		return "file is a test; change what the test proves"
	case m.Find == "" || m.Find == m.Replace:
		return "find and replace must differ"
	case strings.Contains(m.Replace, "panic("):
		return "replace panics; a mutation changes what the clause says, and nothing else"
	case !validTest.MatchString(m.Test):
		return `test is not a package and a test, such as "internal/loop TestLoop_Ends"`
	}
	return ""
}

// Select returns the mutations whose id is one of the given ids, or has one of them as its prefix, such as LC. No ids select
// all mutations.
func Select(all []Mutation, ids []string) []Mutation {
	if len(ids) == 0 {
		return all
	}
	var selected []Mutation
	for _, m := range all {
		prefix, _, _ := strings.Cut(m.ID, "-")
		if slices.Contains(ids, m.ID) || slices.Contains(ids, prefix) {
			selected = append(selected, m)
		}
	}
	return selected
}

// ByPackage sorts mutations by the package of their test and by their file, so that consecutive builds have much in common.
func ByPackage(mutations []Mutation) {
	slices.SortStableFunc(mutations, func(a, b Mutation) int {
		return cmp.Or(cmp.Compare(a.Package(), b.Package()), cmp.Compare(a.File, b.File))
	})
}
