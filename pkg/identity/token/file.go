package token

import (
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/identity"
)

// File is a file of tokens. It is looked at for each call, and read again when it has changed;
// while what lies there cannot be used, the last list that could stays. A token that is taken
// off the list proves nothing from the next call on. Safe for concurrent use.
type File struct {
	path string
	log  *zap.Logger
	now  func() time.Time

	mu     sync.Mutex
	seen   os.FileInfo // of the file that was read last, whether or not it could be used
	all    list
	lament string // what was last said to be wrong with the file
}

// Open reads a file. One that cannot be used now is an error, one that cannot later goes to the
// log.
func Open(path string, log *zap.Logger) (*File, error) {
	f := &File{path: path, log: log, now: time.Now}
	if err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

// Principal is whose token it is. Modes: user_unauthenticated.
func (f *File) Principal(token string) (identity.Principal, error) {
	e, ok := f.current().of(token)
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

func (f *File) current() list {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err == nil && f.seen != nil && os.SameFile(info, f.seen) && info.ModTime().Equal(f.seen.ModTime()) && info.Size() == f.seen.Size() {
		return f.all
	}
	switch err := f.read(); {
	case err == nil:
		f.lament = ""
		f.log.Info("new file of tokens", zap.String("file", f.path), zap.Int("tokens", len(f.all)))
	case err.Error() != f.lament:
		f.lament = err.Error()
		f.log.Warn("the new file of tokens cannot be used; going on with the last one", zap.Error(err))
	}
	return f.all
}

// read reads the file, and notes which it was, so that one is read once.
func (f *File) read() error {
	f.seen = nil
	info, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("--client-tokens: %w", err)
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return fmt.Errorf("--client-tokens: %w", err)
	}
	f.seen = info
	all, err := parse(text)
	if err != nil {
		return fmt.Errorf("--client-tokens: %s: %w", f.path, err)
	}
	f.all = all
	return nil
}
