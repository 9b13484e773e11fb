// Package overlay changes source files for one build. The compiler reads the changed files instead of the real ones (go
// build -overlay), so the working tree stays as it is.
package overlay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Change replaces one snippet of a source file.
type Change struct {
	File        string // relative to the root of the repository
	Find        string // must occur exactly once
	Replacement string
}

// Apply returns the text with the change applied. It fails unless the snippet occurs exactly once, so that a table of
// changes stays in step with the code.
func (c Change) Apply(text string) (string, error) {
	if n := strings.Count(text, c.Find); n != 1 {
		return "", fmt.Errorf("%s holds the snippet %d times, want once; the code has changed, and the table of changes must follow:\n%s", c.File, n,
			c.Find)
	}
	return strings.Replace(text, c.Find, c.Replacement, 1), nil
}

// ApplyAll returns the new text of each file that the changes name. root is the root folder of the repository.
func ApplyAll(root string, changes []Change) (map[string]string, error) {
	texts := map[string]string{}
	for _, c := range changes {
		text, ok := texts[c.File]
		if !ok {
			read, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(c.File)))
			if err != nil {
				return nil, err
			}
			text = string(read)
		}
		var err error
		if texts[c.File], err = c.Apply(text); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// Write writes the changed files into a folder, and a file that makes the compiler read them. It returns the path of that
// file, the value of the flag -overlay.
func Write(root, folder string, changes []Change) (string, error) {
	texts, err := ApplyAll(root, changes)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range texts {
		changed := filepath.Join(folder, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(file))] = changed
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(folder, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}
