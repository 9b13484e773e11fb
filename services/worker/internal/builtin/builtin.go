// Package builtin has the tools that agents declared in YAML can have by name.
package builtin

import (
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Catalog makes builtin tools. The zero Catalog is ready for use.
type Catalog struct {
	// Docs, if set, is the folder of search_documents in place of the declared one.
	Docs string
}

// Names are those of the tools there are, sorted.
func (c Catalog) Names() []string { return []string{CurrentTime, HTTPFetch, SearchDocuments} }

// Tool makes the tool of the given name. Decode fills a struct with what the declaration
// has under "with", and may be called once; its errors are returned as they are. Other
// errors are failures: not_found for a name that is not known, user_invalid_input for
// settings that cannot be, with the name of the field.
func (c Catalog) Tool(name string, decode func(any) error) (tool.Tool, error) {
	switch name {
	case CurrentTime:
		return makeTool(decode, newClock)
	case HTTPFetch:
		return makeTool(decode, newFetch)
	case SearchDocuments:
		return makeTool(decode, func(s searchSettings) (tool.Tool, error) { return newSearch(s, c.Docs) })
	default:
		return nil, failure.Newf(failure.NotFound, "builtin.Tool", "there is no builtin tool %q", name)
	}
}

// makeTool makes a tool with the settings of its declaration.
func makeTool[Settings any](decode func(any) error, build func(Settings) (tool.Tool, error)) (tool.Tool, error) {
	var s Settings
	if err := decode(&s); err != nil {
		return nil, err
	}
	return build(s)
}
