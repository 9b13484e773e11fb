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

// File is a file of tokens. It is looked at for each call, and read again when it has changed;
// while what lies there cannot be used, the last list that could stays, and the log says so. A token
// that is taken off the list proves nothing from the next call on. Safe for concurrent use.
type File struct {
	path string
	log  *zap.Logger
	now  func() time.Time

	mu    sync.Mutex
	seen  os.FileInfo // when it was last looked at, whether or not it could be used; nil: nothing was there
	all   list
	wrong error     // why the file cannot be used; nil: all is its list
	told  time.Time // when the log last heard that
}

// tellEvery is how often the log hears of a file that still cannot be used.
const tellEvery = time.Minute

// Open reads a file. One that cannot be used now is an error, one that cannot later goes to the
// log.
func Open(path string, log *zap.Logger) (*File, error) {
	f := &File{path: path, log: log, now: time.Now}
	if f.look(); f.wrong != nil {
		return nil, f.wrong
	}
	return f, nil
}

// Measure tells a meter whether the file can be used as it is now: while it cannot, whoever was
// taken off it is let in as before. A nil File is none.
func (f *File) Measure(meter metric.Meter) error {
	if f == nil {
		return nil
	}
	_, err := meter.Int64ObservableGauge("troupe.client.tokens.usable",
		metric.WithDescription("1 while the file of tokens can be used; 0 while the last list that could stays in use."),
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

// Principal is whose token it is. Modes: user_unauthenticated.
func (f *File) Principal(token string) (identity.Principal, error) {
	all, _ := f.current()
	e, ok := all.of(token)
	if !ok {
		return identity.Principal{}, refuse("this token is nobody's; ask an operator of the mesh for one")
	}
	if !e.Expires.IsZero() && !f.now().Before(e.Expires) {
		return identity.Principal{}, refuse("this token has ended; ask an operator of the mesh for another").With("name", e.Name)
	}
	return identity.Principal{Role: e.Role, Name: e.Name, Tenant: e.Tenant}, nil
}

func refuse(message string) *failure.Error {
	return failure.New(failure.UserUnauthenticated, "authenticate", message)
}

// current is the list to use now, and why that is not the one of the file, if it is not.
func (f *File) current() (list, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.look()
	switch {
	case f.wrong != nil && (changed || f.now().Sub(f.told) >= tellEvery):
		f.told = f.now()
		f.log.Warn("the file of tokens cannot be used; going on with the last one, so that whoever was taken off is still let in", zap.Error(f.wrong))
	case f.wrong == nil && changed:
		f.log.Info("new file of tokens", zap.String("file", f.path), zap.Int("tokens", len(f.all)))
	}
	return f.all, f.wrong
}

// look reads the file unless it is the one that was read last, and reports whether it is another.
func (f *File) look() (changed bool) {
	info, err := os.Stat(f.path)
	if err != nil {
		changed, f.seen = f.seen != nil, nil
		f.wrong = fmt.Errorf("--client-tokens: %w", err)
		return changed
	}
	changed = f.seen == nil || !os.SameFile(info, f.seen) || !info.ModTime().Equal(f.seen.ModTime()) || info.Size() != f.seen.Size()
	if _, unread := errors.AsType[*fs.PathError](f.wrong); !changed && !unread {
		return false
	}
	f.seen = info
	text, err := os.ReadFile(f.path)
	if err != nil {
		f.wrong = fmt.Errorf("--client-tokens: %w", err)
		return changed
	}
	all, err := parse(text)
	if err != nil {
		f.wrong = fmt.Errorf("--client-tokens: %s: %w", f.path, err)
		return changed
	}
	f.all, f.wrong = all, nil
	return true
}
