package interact

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
)

// inputLine is one line of input and the time at which it was read.
type inputLine struct {
	text         string
	readAt       time.Time
	stopsReading bool // readLines pauses after this line until the hold is released
}

// readLines reads lines in the background until the input or ctx ends. It reads ahead to record when the user
// typed each line. While a hold is active it pauses after each line. No caller waits for it to return, because a
// read from a terminal cannot be cancelled.
func readLines(ctx context.Context, r io.Reader, h *inputHold) <-chan inputLine {
	const ahead = 1024
	lines := make(chan inputLine, ahead)
	go func() {
		defer close(lines)
		in := bufio.NewReader(r)
		for {
			text, err := in.ReadString('\n')
			if text != "" {
				at := time.Now()
				held := h.active.Load()
				select {
				case lines <- inputLine{trimLineEnd(text), at, held}:
				case <-ctx.Done():
					return
				}
				if held && !h.wait(ctx) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// prompt prints the prompt and returns the next line. It returns false at the end of the input, or when the user
// leaves.
func (c *chatSession) prompt(prompt string) (string, bool) { return c.promptSince(prompt, time.Time{}) }

// promptSince works like prompt but ignores lines that the user typed before the given time. Such a line cannot
// answer a question that was not yet on the screen.
func (c *chatSession) promptSince(prompt string, asked time.Time) (string, bool) {
	prompt = c.term.ApplyStyle(console.Bold, prompt)
	for !c.terminated {
		fmt.Fprint(c.term.Out, prompt)
		select {
		case l, ok := <-c.lines:
			c.hold.recordLine(l)
			switch {
			case !ok:
				fmt.Fprintln(c.term.Out)
				return "", false
			case c.term.Interactive && l.readAt.Before(asked):
				c.hold.release()
				c.printNote("Not used as an answer, because you typed it earlier: %s", console.EscapeBeginning(l.text, 60))
				continue
			case !c.term.Interactive:
				fmt.Fprintln(c.term.Out, console.EscapeLine(l.text)) // a terminal has already echoed the line
			}
			c.interruptedOnce = false
			return l.text, true
		case by := <-c.interrupts:
			fmt.Fprintln(c.term.Out)
			if by != os.Interrupt || c.interruptedOnce {
				return "", false
			}
			c.interruptedOnce = true
			c.printNote("Press Ctrl-C again to leave.")
		}
	}
	return "", false
}
