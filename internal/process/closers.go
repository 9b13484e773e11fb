package process

import (
	"errors"
	"io"
	"net"
	"slices"
)

// Closers is a stack of the resources that a process has opened. The zero value is ready for use. It is not safe
// for concurrent use.
type Closers struct{ opened []io.Closer }

// Add adds a resource that Close closes.
func (c *Closers) Add(opened io.Closer) { c.opened = append(c.opened, opened) }

// Close closes all resources, the newest first. It ignores the error of a listener that a server has already
// closed. It may be called more than once.
func (c *Closers) Close() error {
	var errs []error
	for _, opened := range slices.Backward(c.opened) {
		if err := opened.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	c.opened = nil
	return errors.Join(errs...)
}

// CloserFunc is a function that closes a resource and cannot fail. It implements io.Closer.
type CloserFunc func()

// Close implements io.Closer.
func (f CloserFunc) Close() error { f(); return nil }
