package process

import (
	"errors"
	"io"
	"net"
	"slices"
)

// Closers is a stack of the resources that a process has opened. The zero value is ready for use, by one
// goroutine.
type Closers struct{ opened []io.Closer }

// Add adds something to close.
func (c *Closers) Add(opened io.Closer) { c.opened = append(c.opened, opened) }

// Close closes everything, the newest first. It ignores listeners that a server has closed already. It may be
// called more than once.
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

// CloserFunc converts a function that cannot fail to an io.Closer.
type CloserFunc func()

// Close implements io.Closer.
func (f CloserFunc) Close() error { f(); return nil }
