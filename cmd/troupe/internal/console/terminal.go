// Package console contains what all commands need to talk to the user: the terminal, the formatting of text, and
// the parsing of the command line.
//
// Models, tools and users choose much of the text that commands print. This package escapes all of it, so that it
// cannot move the cursor, hide other text, or look like output of the command itself.
package console

import (
	"cmp"
	"context"
	"io"
	"os"

	"golang.org/x/term"
)

// readHidden reads a line from a terminal without echo. When ctx ends, it restores the terminal and returns. The
// read itself continues in the background, because it cannot be cancelled.
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

// Terminal is the input and output of a command.
type Terminal struct {
	In          io.Reader
	Out, Err    io.Writer
	Color       bool // the terminal supports styles
	Interactive bool // input and output are a terminal
	// ReadHidden reads a line from In without echo (nil when In is not a terminal).
	ReadHidden func(context.Context) (string, error)
}

// StandardTerminal returns a Terminal on the standard streams of the process.
func StandardTerminal() Terminal {
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
