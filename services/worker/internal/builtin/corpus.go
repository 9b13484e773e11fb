package builtin

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Limits of what is indexed. Documents and index need about four times the size of the documents in RAM.
const (
	maxFileBytes  = 1 << 20
	maxTotalBytes = 16 << 20
)

// skippedFolders are folders that contain no documents. Folders whose names start with a dot are skipped, too.
var skippedFolders = map[string]bool{"vendor": true, "node_modules": true, "testdata": true, "gen": true}

// readDocuments splits all documents under the paths into passages. It skips files that are too long or not UTF-8.
// It fails if all documents together exceed maxTotalBytes.
func readDocuments(ctx context.Context, paths []string) ([]passage, error) {
	c := &corpus{}
	for _, p := range paths {
		if err := c.addPath(ctx, p); err != nil {
			return nil, err
		}
	}
	if len(c.passages) == 0 {
		return nil, invalidSettingError("with.path: there is no .md, .txt or .go file in %s", strings.Join(paths, ", "))
	}
	return c.passages, nil
}

// corpus holds the documents read so far.
type corpus struct {
	passages []passage
	bytes    int64
}

// addPath reads a file, or all files in a folder and its subfolders.
func (c *corpus) addPath(ctx context.Context, name string) error {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return invalidSettingError("with.path: %s does not exist; name a folder or file as seen from where the worker runs, or use --docs", name)
	}
	if err != nil {
		return unreadableFileError(name, err)
	}
	folder, start := name, "."
	if !info.IsDir() {
		folder, start = filepath.Split(name)
	}
	// An os.Root does not follow links that lead out of the folder.
	root, err := os.OpenRoot(filepath.Clean(folder))
	if err != nil {
		return unreadableFileError(name, err)
	}
	defer root.Close() //nolint:errcheck // it was only read from
	fsys := root.FS()
	return fs.WalkDir(fsys, start, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return unreadableFileError(path.Join(folder, file), err)
		case entry.IsDir() && file != start && (skippedFolders[entry.Name()] || strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case entry.IsDir() || !isDocument(file):
			return nil
		}
		return c.addFile(fsys, file, filepath.ToSlash(filepath.Join(folder, file)))
	})
}

func isDocument(file string) bool {
	ext := path.Ext(file)
	return ext == ".md" || ext == ".txt" || ext == ".go"
}

// addFile reads one file, which results cite by the name shown. It skips links that are broken or lead out of the
// folder.
func (c *corpus) addFile(fsys fs.FS, file, shown string) error {
	if info, err := fs.Stat(fsys, file); err != nil || !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil //nolint:nilerr // unreadable documents are skipped
	}
	text, err := fs.ReadFile(fsys, file)
	if err != nil {
		return unreadableFileError(shown, err)
	}
	if !utf8.Valid(text) {
		return nil
	}
	if c.bytes += int64(len(text)); c.bytes > maxTotalBytes {
		return invalidSettingError("with.path: there are more than %d MiB of documents; name a smaller folder", maxTotalBytes>>20)
	}
	c.passages = append(c.passages, splitPassages(shown, string(text))...)
	return nil
}

func invalidSettingError(format string, args ...any) *failure.Error {
	return failure.Newf(failure.UserInvalidInput, "search_documents", format, args...)
}

func unreadableFileError(name string, cause error) error {
	return invalidSettingError("with.path: %s cannot be read", name).Because(cause)
}
