package builtin

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// SearchDocuments is the name of the tool that finds passages in documents.
const SearchDocuments = "search_documents"

// Limits of the number of passages that a search returns.
const (
	defaultPassages = 5
	maxPassages     = 20
)

// searchSettings has the settings under "with".
type searchSettings struct {
	Path  string   `yaml:"path"`  // a folder or file, relative to the working directory of the worker
	Paths []string `yaml:"paths"` // further folders or files
}

// searchArguments has the arguments of a call.
type searchArguments struct {
	Query string `json:"query" jsonschema:"the words to look for"`
	Limit int    `json:"limit,omitempty" jsonschema:"how many passages to return, 1 to 20; 5 if absent"`
}

// search implements the SearchDocuments tool. It keeps an index in RAM between Start and Close.
type search struct {
	tool.Tool

	paths []string
	index atomic.Pointer[index]
}

func newSearch(settings searchSettings, override string) (tool.Tool, error) {
	paths := slices.DeleteFunc(append([]string{settings.Path}, settings.Paths...), func(p string) bool { return p == "" })
	if override != "" {
		paths = []string{override}
	}
	if len(paths) == 0 {
		return nil, failure.New(failure.UserInvalidInput, "builtin.Tool",
			"with.path is missing: name the folder to search, such as ./docs")
	}
	s := &search{paths: paths}
	var err error
	s.Tool, err = tool.Func(SearchDocuments,
		"Searches the documents and returns the passages that fit best, each with its file and line.", s.findPassages)
	return s, err
}

// Scope implements tool.Scoper. The documents count as trusted, because the author of the agent chose them. If
// other people can write to the folder, the declaration must say so.
func (s *search) Scope() tool.Scope { return tool.Scope{} }

// Start reads and indexes the documents. It stops when ctx ends.
func (s *search) Start(ctx context.Context) error {
	passages, err := readDocuments(ctx, s.paths)
	if err != nil {
		return err
	}
	built, err := newIndex(ctx, passages)
	if err != nil {
		return err
	}
	s.index.Store(built)
	return nil
}

// Close drops the index.
func (s *search) Close() error {
	s.index.Store(nil)
	return nil
}

// Effect implements tool.Effector. Searching changes nothing.
func (s *search) Effect() execution.Effect { return execution.Read }

// findPassages returns the matching passages, separated by blank lines. Each begins with a line "path:line". The
// result is empty if nothing matches.
func (s *search) findPassages(ctx context.Context, in searchArguments) (string, error) {
	built := s.index.Load()
	if built == nil {
		return "", failure.New(failure.AgentState, "search_documents", "the documents are not indexed: the agent is not started")
	}
	limit := min(in.Limit, maxPassages)
	if limit <= 0 {
		limit = defaultPassages
	}
	found, err := built.search(ctx, in.Query, limit)
	if err != nil {
		return "", err
	}
	blocks := make([]string, 0, len(found))
	for _, p := range found {
		blocks = append(blocks, p.path+":"+strconv.Itoa(p.line)+"\n"+p.text)
	}
	return strings.Join(blocks, "\n\n"), nil
}
