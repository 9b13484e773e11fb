package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const repositoryRoot = "../.."

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`(?m)^#+ (.*)$`)
	nonWordChar    = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// Every link within the repository leads to an existing file and to an existing heading of it.
func TestLinks_HaveExistingTargets(t *testing.T) {
	for _, page := range pagePaths(t) {
		for _, found := range linkPattern.FindAllStringSubmatch(readPage(t, page), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(found[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(filepath.Join(repositoryRoot, target)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, found[1])
				continue
			}
			if anchor != "" && strings.HasSuffix(target, ".md") && !anchors(t, target)[anchor] {
				t.Errorf("%s: the link %s leads to no heading", page, found[1])
			}
		}
	}
}

// The index names every page of docs/.
func TestIndex_NamesEveryPage(t *testing.T) {
	index := readPage(t, "docs/README.md")
	entries, err := os.ReadDir(filepath.Join(repositoryRoot, "docs"))
	require.NoError(t, err)
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".md") && name != "README.md" {
			require.Contains(t, index, "("+name+")")
		}
	}
}

// pagePaths returns the paths of the repository's Markdown files.
func pagePaths(t *testing.T) (pages []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(repositoryRoot, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (strings.HasPrefix(name, ".") && path != repositoryRoot || name == "node_modules" || name == "testdata" || name == "templates") {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			in, err := filepath.Rel(repositoryRoot, path)
			pages = append(pages, filepath.ToSlash(in))
			return err
		}
		return nil
	}))
	require.NotEmpty(t, pages)
	return pages
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repositoryRoot, page))
	require.NoError(t, err)
	return string(text)
}

// anchors returns the anchors of a page's headings as GitHub generates them.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, found := range headingPattern.FindAllStringSubmatch(readPage(t, page), -1) {
		all[strings.ReplaceAll(nonWordChar.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-")] = true
	}
	return all
}

// section returns the text below a heading of a page, up to the next heading of the same level.
func section(t *testing.T, page, title string) string {
	t.Helper()
	_, rest, ok := strings.Cut(readPage(t, page), "\n## "+title+"\n")
	require.True(t, ok, "%s has no part %q", page, title)
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// firstCells returns the words in backquotes in the first column of the tables of a text.
func firstCells(text string) map[string]bool {
	words := map[string]bool{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 2 {
			continue
		}
		for _, found := range backquoted.FindAllStringSubmatch(cells[0], -1) {
			words[found[1]] = true
		}
	}
	return words
}

var backquoted = regexp.MustCompile("`([^`]+)`")
