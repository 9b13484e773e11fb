package pkg_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unclearPhrases matches phrases that make a sentence hard to read. Each has a plain form: a noun instead of "that of",
// a second sentence instead of "of which", an active verb with its subject instead of "is told".
var unclearPhrases = regexp.MustCompile(`(?i)\b(that of|of which nobody|goes? on with|nobody's|whoever|is told|shall|what is not there|` +
	`it may be that|beside each other)\b|; (nil|0): (it|none)`)

// mayHavePhrases lists the files that hold such phrases, with the reason.
var mayHavePhrases = map[string]string{
	"pkg/words_test.go":              "the phrases themselves",
	"pkg/llm/extractive/question.go": "a list of frequent words, which a search ignores",
}

func TestWords_AreClear(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		if d.IsDir() {
			if path != ".." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "gen", "node_modules", "testdata"}, d.Name())) {
				return fs.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".md", ".proto", ".lua", ".yaml", ".ts":
		default:
			return nil
		}
		if mayHavePhrases[name] != "" {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(content), "\n") {
			for _, phrase := range unclearPhrases.FindAllString(line, -1) {
				t.Errorf("%s:%d: say it without %q", name, i+1, phrase)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
