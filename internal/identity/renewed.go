package identity

import (
	"crypto/x509"
	"sync"

	"go.uber.org/zap"
)

// renewed are keys that are read again when their files change. While those that lie there cannot be
// used, the last ones that could stay in use. What becomes of them goes to the log. Safe for
// concurrent use.
type renewed[K certified] struct {
	log    *zap.Logger
	read   func(last K) (K, error) // returns last when nothing is new
	wrong  string                  // said of files that cannot be used
	others string                  // said of new ones that can
	of     zap.Field               // tells the certificate from others in the log

	mu     sync.Mutex
	last   K
	lament string // what was last said to be wrong with the files
	ending ending
}

// certified is what has a certificate.
type certified interface {
	comparable
	leaf() *x509.Certificate
}

// current are the keys to use now.
func (r *renewed[K]) current() K {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.read(r.last)
	if err == nil {
		r.lament = "" // the same fault is news when it comes again
	}
	switch {
	case err != nil && err.Error() != r.lament:
		r.lament = err.Error()
		r.log.Warn(r.wrong, zap.Error(err), until(r.last.leaf()))
	case err == nil && next != r.last:
		r.last = next
		r.log.Info(r.others, until(next.leaf()))
	}
	r.ending.tell(r.log, r.last.leaf(), r.of)
	return r.last
}
