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

// Limits of the output of a program that is not a message.
const (
	maxGarbage = 1000    // lines on stdout that are no message, before it is given up
	maxShown   = 20      // of them in the log
	maxLine    = 2 << 10 // bytes of a line in the log
	lastLines  = 5       // of stderr in the error of a program that did not start
)

// messages is the stdout of a program without the lines that are not messages: programs greet there, or write what
// belongs on stderr. One goroutine reads it.
type messages struct {
	io.Closer

	lines   *bufio.Reader
	log     *zap.Logger
	line    []byte // what is left of the current message
	garbage int
}

func newMessages(stdout io.ReadCloser, log *zap.Logger) *messages {
	return &messages{Closer: stdout, lines: bufio.NewReaderSize(stdout, 64<<10), log: log}
}

func (m *messages) Read(p []byte) (int, error) {
	for len(m.line) == 0 {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, m.line)
	m.line = m.line[n:]
	return n, nil
}

// next reads a line, and keeps it if it is a message.
func (m *messages) next() error {
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
			return err // what is left has no end, so it is no message
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

// stderr logs each line of a program's stderr.
type stderr struct {
	log *zap.Logger

	mu   sync.Mutex
	line []byte
	tail []string
}

func (s *stderr) Write(p []byte) (int, error) {
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

// logLine logs the line. The caller holds the lock.
func (s *stderr) logLine() {
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

// flush logs the last line if it does not end with a newline.
func (s *stderr) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLine()
}

// last returns the last lines, joined.
func (s *stderr) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.tail, " / ")
}
