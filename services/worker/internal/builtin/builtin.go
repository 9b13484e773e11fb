// Package builtin implements the tools that YAML agents can use by name.
package builtin

import (
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Catalog creates builtin tools. The zero Catalog is ready for use.
type Catalog struct {
	// Docs is the folder that search_documents reads (empty means the declared folder).
	Docs string
}

// Names returns the names of the builtin tools, sorted.
func (c Catalog) Names() []string { return []string{CurrentTime, HTTPFetch, SearchDocuments} }

// Tool creates the tool with the given name. decode fills a struct with the settings under "with". It may be
// called only once, and its errors are returned unchanged. Other errors are not_found for an unknown name, and
// user_invalid_input for invalid settings. The latter names the field.
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

// makeTool decodes the settings of a declaration and creates the tool with them.
func makeTool[Settings any](decode func(any) error, build func(Settings) (tool.Tool, error)) (tool.Tool, error) {
	var s Settings
	if err := decode(&s); err != nil {
		return nil, err
	}
	return build(s)
}
