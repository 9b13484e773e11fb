// Package console is what all commands share to talk to the user: the terminal that they read from and write
// to, the formatting of text, and the parsing of command lines.
//
// Models, tools and users may say anything. Everything that this package prints is escaped first: it cannot
// move the cursor, hide itself, or look like a line of the command.
package console

import (
	"cmp"
	"context"
	"io"
	"os"

	"golang.org/x/term"
)

// readHidden reads a line of a terminal without showing it. When ctx ends it restores the terminal; the read
// itself continues, because it cannot be cancelled.
func readHidden(ctx context.Context, fd int) (string, error) {
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	type typed struct {
		text []byte
		err  error
	}
	done := make(chan typed, 1)
	go func() {
		text, err := term.ReadPassword(fd)
		done <- typed{text, err}
	}()
	select {
	case got := <-done:
		return string(got.text), got.err
	case <-ctx.Done():
		return "", cmp.Or(term.Restore(fd, before), ctx.Err())
	}
}

// Terminal is where a command reads from and writes to.
type Terminal struct {
	In          io.Reader
	Out, Err    io.Writer
	Color       bool // the terminal understands styles
	Interactive bool // a person types and reads
	// ReadHidden reads a line of In without showing it (nil when In is not a terminal).
	ReadHidden func(context.Context) (string, error)
}

// Standard returns the terminal, files or pipes that the process was started with.
func Standard() Terminal {
	shown := isTerminal(os.Stdout)
	with := Terminal{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Color: shown && os.Getenv("NO_COLOR") == "", Interactive: shown && isTerminal(os.Stdin),
	}
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		with.ReadHidden = func(ctx context.Context) (string, error) { return readHidden(ctx, fd) }
	}
	return with
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
