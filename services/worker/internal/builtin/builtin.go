// Package builtin has the tools that YAML agents can use by name.
package builtin

import (
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Catalog creates builtin tools. The zero Catalog is ready for use.
type Catalog struct {
	// Docs is the folder of search_documents (empty means the declared one).
	Docs string
}

// Names returns the names of the builtin tools, sorted.
func (c Catalog) Names() []string { return []string{CurrentTime, HTTPFetch, SearchDocuments} }

// Tool creates the tool of the given name. decode fills a struct with the settings under "with", and may be
// called once; its errors are returned unchanged. Other errors are not_found for an unknown name, and
// user_invalid_input for invalid settings, with the name of the field.
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

// makeTool creates a tool with the settings of its declaration.
func makeTool[Settings any](decode func(any) error, build func(Settings) (tool.Tool, error)) (tool.Tool, error) {
	var s Settings
	if err := decode(&s); err != nil {
		return nil, err
	}
	return build(s)
}
