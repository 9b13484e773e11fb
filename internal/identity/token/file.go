package token

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// File is a token file. It is reread whenever a call finds it changed. While the new content is invalid, the last
// valid list stays in use, and this is logged. A token removed from the file is rejected from the next call on.
// File is safe for concurrent use.
type File struct {
	path string
	log  *zap.Logger
	now  func() time.Time

	mu         sync.Mutex
	lastInfo   os.FileInfo // file info of the last check (nil if the file was missing)
	entries    entryList
	loadErr    error     // why the file is invalid (nil if entries is its content)
	lastWarned time.Time // when loadErr was last logged
}

// warnInterval is the interval between warnings about an invalid file.
const warnInterval = time.Minute

// Open reads a token file. It fails if the file is invalid. If the file becomes invalid later, that is only
// logged.
func Open(path string, log *zap.Logger) (*File, error) {
	f := &File{path: path, log: log, now: time.Now}
	if f.reload(); f.loadErr != nil {
		return nil, f.loadErr
	}
	return f, nil
}

// RegisterMetrics registers a gauge that is 1 while the file is valid and 0 otherwise. While the file is invalid,
// tokens removed from it are still accepted. A nil File has no gauge.
func (f *File) RegisterMetrics(meter metric.Meter) error {
	if f == nil {
		return nil
	}
	_, err := meter.Int64ObservableGauge("troupe.client.tokens.usable",
		metric.WithDescription("1 while the file of tokens is valid; 0 while it is not and the last valid list stays in use."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			if _, err := f.current(); err != nil {
				o.Observe(0)
			} else {
				o.Observe(1)
			}
			return nil
		}))
	return err
}

// Principal returns the principal to whom a token belongs. Modes: user_unauthenticated.
func (f *File) Principal(token string) (identity.Principal, error) {
	all, _ := f.current()
	e, ok := all.findEntry(token)
	if !ok {
		return identity.Principal{}, newUnauthenticatedError("this token is unknown; ask an operator of the mesh for one")
	}
	if !e.Expires.IsZero() && !f.now().Before(e.Expires) {
		return identity.Principal{}, newUnauthenticatedError("this token has expired; ask an operator of the mesh for another").With("name", e.Name)
	}
	return identity.Principal{Role: e.Role, Name: e.Name, Tenant: e.Tenant}, nil
}

func newUnauthenticatedError(message string) *failure.Error {
	return failure.New(failure.UserUnauthenticated, "authenticate", message)
}

// current returns the last valid list, and the error of the file if its present content is invalid.
func (f *File) current() (entryList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.reload()
	switch {
	case f.loadErr != nil && (changed || f.now().Sub(f.lastWarned) >= warnInterval):
		f.lastWarned = f.now()
		f.log.Warn("the file of tokens is invalid; the previous list stays in use, and tokens removed since are still accepted; "+
			"correct the file", zap.Error(f.loadErr))
	case f.loadErr == nil && changed:
		f.log.Info("loaded a new file of tokens", zap.String("file", f.path), zap.Int("tokens", len(f.entries)))
	}
	return f.entries, f.loadErr
}

// reload reads the file if it has changed since the last check or could not be read then. It reports whether the
// file has changed or become readable.
func (f *File) reload() (changed bool) {
	info, err := os.Stat(f.path)
	if err != nil {
		changed, f.lastInfo = f.lastInfo != nil, nil
		f.loadErr = fmt.Errorf("--client-tokens: %w", err)
		return changed
	}
	changed = f.lastInfo == nil || !os.SameFile(info, f.lastInfo) || !info.ModTime().Equal(f.lastInfo.ModTime()) || info.Size() != f.lastInfo.Size()
	if _, unread := errors.AsType[*fs.PathError](f.loadErr); !changed && !unread {
		return false
	}
	f.lastInfo = info
	text, err := os.ReadFile(f.path)
	if err != nil {
		f.loadErr = fmt.Errorf("--client-tokens: %w", err)
		return changed
	}
	all, err := parseFile(text)
	if err != nil {
		f.loadErr = fmt.Errorf("--client-tokens: %s: %w", f.path, err)
		return changed
	}
	f.entries, f.loadErr = all, nil
	return true
}
