// Package watch reports that files in a folder have changed, once no more changes follow.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// Folder watches a folder on disk and all folders inside it. It ignores node_modules and names that begin with a
// dot or end with a tilde, because editors, version control and package managers write there.
type Folder struct {
	dir     string
	log     *zap.Logger
	watcher *fsnotify.Watcher
}

// New starts to watch a folder. Changes from now on are reported by Run, which also closes the watch.
func New(dir string, log *zap.Logger) (*Folder, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	f := &Folder{dir: filepath.Clean(dir), log: log, watcher: watcher}
	if err := f.watchTree(f.dir); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), watcher.Close())
	}
	return f, nil
}

// Close stops the watch of a Folder whose Run is never called. Further calls do nothing.
func (f *Folder) Close() error { return f.watcher.Close() }

// Run calls changed after each change, until ctx ends. Changes in quick succession are reported once. An editor
// that saves by renaming, for example, makes several changes.
func (f *Folder) Run(ctx context.Context, changed func()) {
	defer func() { _ = f.watcher.Close() }()
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		for f.awaitChange(ctx) {
			select {
			case seen <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	debounce(seen, changed)
}

// awaitChange waits for the next change. It returns false if the watch has ended.
func (f *Folder) awaitChange(ctx context.Context) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case e, ok := <-f.watcher.Events:
			if !ok {
				return false
			}
			if e.Op != fsnotify.Chmod && !f.isIgnored(e.Name) {
				if e.Has(fsnotify.Create) {
					f.watchNew(e.Name)
				}
				return true
			}
		case err, ok := <-f.watcher.Errors:
			if !ok {
				return false
			}
			f.log.Warn("some changes may have been missed", zap.String("folder", f.dir), zap.Error(err))
			return true
		}
	}
}

// watchNew watches a new folder. Files that are already in it are covered by the change that reports the folder.
func (f *Folder) watchNew(name string) {
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return // it is not a folder, or is gone again
	}
	if err := f.watchTree(name); err != nil {
		f.log.Warn("changes in a folder are not noticed", zap.String("folder", name), zap.Error(err))
	}
}

// watchTree watches a folder and all folders inside it.
func (f *Folder) watchTree(dir string) error {
	return filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && name == f.dir:
			return err
		case err != nil: // it was removed meanwhile
			return fs.SkipDir
		case !entry.IsDir():
			return nil
		case f.isIgnored(name):
			return fs.SkipDir
		}
		return f.watcher.Add(name)
	})
}

func (f *Folder) isIgnored(name string) bool {
	inside, err := filepath.Rel(f.dir, name)
	if err != nil || inside == "." {
		return false
	}
	return slices.ContainsFunc(strings.Split(filepath.ToSlash(inside), "/"), func(part string) bool {
		return strings.HasPrefix(part, ".") || strings.HasSuffix(part, "~") || part == "node_modules"
	})
}

// How long to wait for further changes before a change is reported.
const (
	quietTime = 100 * time.Millisecond // time without a change before a report
	maxDelay  = time.Second            // limit after the first change, even if more changes follow
)

// debounce calls changed once for several changes in quick succession. It returns when the channel is closed.
func debounce(seen <-chan struct{}, changed func()) {
	for range seen {
		calm, enough := time.NewTimer(quietTime), time.NewTimer(maxDelay)
		for waiting := true; waiting; {
			select {
			case _, more := <-seen:
				if !more {
					return
				}
				calm.Reset(quietTime)
			case <-calm.C:
				waiting = false
			case <-enough.C:
				waiting = false
			}
		}
		calm.Stop()
		enough.Stop()
		changed()
	}
}
