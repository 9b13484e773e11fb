package mcptool

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"go.uber.org/zap"
)

// Limits of program output other than messages.
const (
	maxGarbage = 1000    // lines on stdout other than messages, before the server is given up
	maxShown   = 20      // how many of these lines are logged
	maxLine    = 2 << 10 // maximum bytes of a logged line
	lastLines  = 5       // lines of stderr in the error of a program that did not start
)

// messageReader reads the messages from a program's stdout. It skips all other lines, because some programs print
// a greeting or log lines there. Only one goroutine may read it.
type messageReader struct {
	io.Closer

	lines   *bufio.Reader
	log     *zap.Logger
	line    []byte // unread rest of the current message
	garbage int
}

func newMessageReader(stdout io.ReadCloser, log *zap.Logger) *messageReader {
	return &messageReader{Closer: stdout, lines: bufio.NewReaderSize(stdout, 64<<10), log: log}
}

func (m *messageReader) Read(p []byte) (int, error) {
	for len(m.line) == 0 {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, m.line)
	m.line = m.line[n:]
	return n, nil
}

// next reads one line and keeps it if it is a message.
func (m *messageReader) next() error {
	var line []byte
	for {
		part, err := m.lines.ReadSlice('\n')
		if len(line)+len(part) > maxMessage {
			return fmt.Errorf("it sent a message of more than %d bytes", maxMessage)
		}
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err // the rest has no newline, so it is not a message
		}
	}
	text := bytes.TrimSpace(line)
	if len(text) == 0 {
		return nil
	}
	if (text[0] == '{' || text[0] == '[') && json.Valid(text) {
		m.line = append(text, '\n')
		return nil
	}
	if m.garbage++; m.garbage > maxGarbage {
		return fmt.Errorf("it wrote more than %d lines that are no message to stdout", maxGarbage)
	}
	if m.garbage <= maxShown {
		m.log.Warn("the server wrote something to stdout that is no message", zap.String("line", string(text[:min(len(text), maxLine)])))
	}
	return nil
}

// stderrLogger logs each line that a program writes to stderr.
type stderrLogger struct {
	log *zap.Logger

	mu   sync.Mutex
	line []byte
	tail []string
}

func (s *stderrLogger) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rest := p; len(rest) > 0; {
		text, behind, whole := bytes.Cut(rest, []byte("\n"))
		s.line = append(s.line, text[:min(len(text), maxLine-len(s.line))]...)
		if whole {
			s.logLine()
		}
		rest = behind
	}
	return len(p), nil
}

// logLine logs the buffered line. The caller holds the lock.
func (s *stderrLogger) logLine() {
	text := strings.TrimSpace(strings.ToValidUTF8(string(s.line), "?"))
	s.line = s.line[:0]
	if text == "" {
		return
	}
	s.log.Info("stderr", zap.String("line", text))
	if s.tail = append(s.tail, text); len(s.tail) > lastLines {
		s.tail = s.tail[1:]
	}
}

// flush logs a last line that has no newline.
func (s *stderrLogger) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLine()
}

// joinedTail returns the last few lines, joined for an error message.
func (s *stderrLogger) joinedTail() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.tail, " / ")
}
