package process

import (
	"errors"
	"io"
	"net"
	"slices"
)

// Closers are what a process has opened before it runs, oldest first. The zero value is
// ready. One goroutine uses it.
type Closers struct{ opened []io.Closer }

// Add takes what is to be closed.
func (c *Closers) Add(opened io.Closer) { c.opened = append(c.opened, opened) }

// Close closes everything, newest first. A listener that a server has closed already is
// fine, and so is a second Close.
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

// CloserFunc makes an io.Closer of a function that cannot fail.
type CloserFunc func()

// Close implements io.Closer.
func (f CloserFunc) Close() error { f(); return nil }
