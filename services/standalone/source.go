package standalone

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// readOnceFS is a file system that reads each file of a folder only once, so that all agents are created from the same content. Safe
// for concurrent use.
type readOnceFS struct {
	folder  fs.FS
	invalid map[string]bool // manifests with errors, which are left out

	mu    sync.Mutex
	files map[string]fileContent
}

type fileContent struct {
	text []byte
	err  error
}

func newReadOnceFS(folder fs.FS) *readOnceFS {
	return &readOnceFS{folder: folder, invalid: map[string]bool{}, files: map[string]fileContent{}}
}

// Open implements fs.FS.
func (f *readOnceFS) Open(name string) (fs.File, error) { return f.folder.Open(name) }

// ReadDir implements fs.ReadDirFS.
func (f *readOnceFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.folder, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return name == "." && f.invalid[e.Name()] }), err
}

// ReadFile implements fs.ReadFileFS.
func (f *readOnceFS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.files[name]
	if !ok {
		c.text, c.err = fs.ReadFile(f.folder, name)
		f.files[name] = c
	}
	return slices.Clone(c.text), c.err
}

// fileRecorder records which files are read while an agent is created.
type fileRecorder struct {
	*readOnceFS
	names []string // names of the recorded files
}

// ReadFile implements fs.ReadFileFS.
func (f *fileRecorder) ReadFile(name string) ([]byte, error) {
	if !slices.Contains(f.names, name) {
		f.names = append(f.names, name)
	}
	return f.readOnceFS.ReadFile(name)
}

// agentSource identifies everything that an agent was created from. Equal sources give the same agent.
type agentSource struct {
	documentDigest string            // digest of its document
	fileDigests    map[string]string // digests of the other files that were read for it, by name
	treeDigests    map[string]string // digests of the files and folders that its tools use, by path
}

// fileNames returns the names of the files that were read for the agent.
func (s agentSource) fileNames() []string { return slices.Collect(maps.Keys(s.fileDigests)) }

// newAgentSource returns the source of an agent, given the names of the files that were read for it.
func (d declarations) newAgentSource(agent string, names []string) agentSource {
	doc := d.agents[agent]
	s := agentSource{doc.Digest(), map[string]string{}, map[string]string{}}
	for _, name := range names {
		if !d.manifests[name] {
			s.fileDigests[name] = d.snapshot.digest(name)
		}
	}
	if d.dir != "" {
		for _, path := range doc.FieldTexts("with") { // the settings of tools; most are not paths
			s.treeDigests[path] = treeDigest(d.dir, path)
		}
	}
	return s
}

// digest returns the digest of a file. If the file cannot be read, it returns the digest of the error.
func (f *readOnceFS) digest(name string) string {
	text, err := f.ReadFile(name)
	if err != nil {
		return fmt.Sprint("unreadable: ", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// treeDigest returns a digest of the files at a path: their names, sizes and modification times. It is empty if
// the path is outside of the folder.
func treeDigest(dir, path string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	if inside, err := filepath.Rel(dir, path); err != nil || !filepath.IsLocal(inside) {
		return ""
	}
	hash := sha256.New()
	_ = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // it does not exist, or was removed
		}
		hidden := name != path && strings.HasPrefix(entry.Name(), ".")
		switch {
		case hidden && entry.IsDir():
			return fs.SkipDir
		case hidden, entry.IsDir():
			return nil
		}
		if info, err := entry.Info(); err == nil {
			fmt.Fprintln(hash, name, info.Size(), info.ModTime().UnixNano())
		}
		return nil
	})
	return hex.EncodeToString(hash.Sum(nil))
}
