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

var identifierPattern = regexp.MustCompile("`([A-Za-z][A-Za-z.]*)`")

// Every identifier in a row of docs/code.md occurs, as a whole word, in the files that the row links to.
func TestCodePage_NamesExistingCode(t *testing.T) {
	for row := range strings.SplitSeq(readPage(t, "docs/code.md"), "\n") {
		paths := linkPattern.FindAllStringSubmatch(row, -1)
		if !strings.HasPrefix(row, "| ") || len(paths) == 0 {
			continue
		}
		cells := strings.Split(row, " | ")
		var files strings.Builder
		for _, path := range paths {
			files.WriteString(readTree(t, filepath.Join(repositoryRoot, "docs", path[1])))
		}
		for _, name := range identifierPattern.FindAllStringSubmatch(strings.Join(cells[2:], " "), -1) {
			last := name[1]
			if !strings.HasSuffix(last, ".go") {
				last = last[strings.LastIndex(last, ".")+1:]
			}
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(last) + `\b`).MatchString(files.String()) {
				t.Errorf("docs/code.md names %s, which is not in the files beside it: %s", name[1], cells[0])
			}
		}
	}
}

// readTree returns the text of a file. For a folder it returns the names and texts of all files below it.
func readTree(t *testing.T, path string) string {
	t.Helper()
	var text strings.Builder
	require.NoError(t, filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		text.WriteString(path + "\n")
		if d.IsDir() {
			return nil
		}
		content, err := os.ReadFile(path)
		text.Write(content)
		return err
	}))
	return text.String()
}
