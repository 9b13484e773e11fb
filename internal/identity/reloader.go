package identity

import (
	"crypto/x509"
	"sync"

	"go.uber.org/zap"
)

// reloader rereads keys when their files change. While new files are invalid, the last valid keys stay in use.
// Reloads and failures are logged. It is safe for concurrent use.
type reloader[K leafHolder] struct {
	log             *zap.Logger
	read            func(last K) (K, error) // returns last if the files did not change
	failedMessage   string                  // logged for invalid files
	reloadedMessage string                  // logged for new valid files
	label           zap.Field               // identifies the certificate in the log

	mu        sync.Mutex
	last      K
	lastError string // the last error that was logged
	expiry    expiryLog
}

// leafHolder is implemented by sets of keys that contain a certificate.
type leafHolder interface {
	comparable
	leaf() *x509.Certificate
}

// current returns the latest valid keys.
func (r *reloader[K]) current() K {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.read(r.last)
	if err == nil {
		r.lastError = "" // log the same error again when it returns
	}
	switch {
	case err != nil && err.Error() != r.lastError:
		r.lastError = err.Error()
		r.log.Warn(r.failedMessage, zap.Error(err), expiryField(r.last.leaf()))
	case err == nil && next != r.last:
		r.last = next
		r.log.Info(r.reloadedMessage, expiryField(next.leaf()))
	}
	r.expiry.logExpiry(r.log, r.last.leaf(), r.label)
	return r.last
}
