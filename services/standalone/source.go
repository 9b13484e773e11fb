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

// reading is a folder as it is read for one change: each file once, so that all agents are
// made of the same. Safe for concurrent use.
type reading struct {
	folder fs.FS
	hidden map[string]bool // manifests that are wrong

	mu    sync.Mutex
	files map[string]content
}

type content struct {
	text []byte
	err  error
}

func read(folder fs.FS) *reading {
	return &reading{folder: folder, hidden: map[string]bool{}, files: map[string]content{}}
}

// Open implements fs.FS.
func (r *reading) Open(name string) (fs.File, error) { return r.folder.Open(name) }

// ReadDir implements fs.ReadDirFS.
func (r *reading) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(r.folder, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return name == "." && r.hidden[e.Name()] }), err
}

// ReadFile implements fs.ReadFileFS.
func (r *reading) ReadFile(name string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.files[name]
	if !ok {
		c.text, c.err = fs.ReadFile(r.folder, name)
		r.files[name] = c
	}
	return slices.Clone(c.text), c.err
}

// noted is a reading for the making of one agent.
type noted struct {
	*reading
	names []string // of the files that were read
}

// ReadFile implements fs.ReadFileFS.
func (n *noted) ReadFile(name string) ([]byte, error) {
	if !slices.Contains(n.names, name) {
		n.names = append(n.names, name)
	}
	return n.reading.ReadFile(name)
}

// source is what an agent is made of. Two that are equal make the same agent.
type source struct {
	declared string            // digest of its document
	files    map[string]string // that were read for it, other than manifests, with their digests
	trees    map[string]string // what its tools are pointed at in the folder, likewise
}

// names are those of the files that were read.
func (s source) names() []string { return slices.Collect(maps.Keys(s.files)) }

// source is that of an agent for which files of these names were read.
func (d declarations) source(agent string, names []string) source {
	doc := d.agents[agent]
	s := source{doc.Digest(), map[string]string{}, map[string]string{}}
	for _, name := range names {
		if !d.manifests[name] {
			s.files[name] = d.files.digest(name)
		}
	}
	if d.dir != "" {
		for _, path := range doc.Texts("with") { // the settings of tools; most are no paths
			s.trees[path] = tree(d.dir, path)
		}
	}
	return s
}

// digest is of a file as it is, or of why it cannot be read.
func (r *reading) digest(name string) string {
	text, err := r.ReadFile(name)
	if err != nil {
		return fmt.Sprint("unreadable: ", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// tree tells the files at a path from what they were before, by their names, sizes and times;
// empty when the path is not in the folder.
func tree(dir, path string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	if below, err := filepath.Rel(dir, path); err != nil || !filepath.IsLocal(below) {
		return ""
	}
	hash := sha256.New()
	_ = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // it is not there, or went away
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
