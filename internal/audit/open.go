package audit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
)

// DefaultMaxBytes is how large a file becomes before the next one begins.
const DefaultMaxBytes = 64 << 20

// Config is where a log is kept.
type Config struct {
	// Path of the file that is written. Those that are full lie beside it, as PATH.000001 and
	// so on; nobody removes them. Its folder is made when it is not there.
	Path string
	// MaxBytes is about how large a file becomes; 0: 64 MiB.
	MaxBytes int64
	// Name of the program, for the lines of the log that carries no other name.
	Name string
	// Log is told where the chain is, and when entries are lost.
	Log *zap.Logger
	// Meter counts entries and losses.
	Meter metric.Meter
}

// New opens a log, and goes on with the chain that it finds there. The file is its owner's
// alone, and of one process at a time. The caller closes the log.
func New(cfg Config) (*Log, error) {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	entries, err := cfg.Meter.Int64Counter("troupe.audit.entries", metric.WithDescription("Entries for the audit log, by kind."))
	if err != nil {
		return nil, err
	}
	missing, err := cfg.Meter.Int64Counter("troupe.audit.lost",
		metric.WithDescription("Entries that are not in the audit log: its disk failed, or did not keep up."))
	if err != nil {
		return nil, err
	}
	c, err := open(cfg.Path, cfg.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	q := &queue{
		chain: c, log: cfg.Log, entries: entries, missing: missing,
		waiting: make(chan recorded, room), stop: make(chan struct{}), done: make(chan struct{}),
	}
	q.log.Info("audit log goes on here", q.where()...)
	go q.run()
	return &Log{at: cfg.Name, queue: q}, nil
}

// open finds the end of the chain, and writes that it goes on.
func open(path string, most int64) (_ *chain, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	c := &chain{path: path, most: most, head: origin, torn: sha256.New()}
	if c.file, err = create(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.file.Close()
		}
	}()
	info, err := c.file.Stat()
	if err != nil {
		return nil, err
	}
	c.size = info.Size()
	aside, _, err := numbered(path)
	switch {
	case err != nil:
		return nil, err
	case c.size > 0:
		err = c.find(c.file, c.size)
	case len(aside) > 0: // it stopped between two files
		err = c.after(aside[len(aside)-1])
	}
	if err != nil {
		return nil, err
	}
	first := own(resumes, nil)
	if c.n == 0 {
		first = own(begins, nil)
	}
	_, err = c.add(first)
	return c, errors.Join(err, c.sync(), syncFolder(path))
}

// create opens a file to add to, for this process alone.
func create(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%s is another process's; name another file: %w", path, err)
	}
	return file, nil
}

// window is how far back from its end a file is searched for its last line.
const window = 4 << 20

// find looks for the last line of a file. What stands behind it was torn.
func (c *chain) find(file io.ReaderAt, size int64) error {
	from := max(0, size-window)
	text := make([]byte, size-from)
	if _, err := file.ReadAt(text, from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for end := bytes.LastIndexByte(text, '\n'); end >= 0; {
		begin := bytes.LastIndexByte(text[:end], '\n') + 1
		if l, hash, ok := decode(text[begin:end]); ok {
			c.n, c.head = l.N, hash
			c.tear(text[end+1:])
			return nil
		}
		end = begin - 1
	}
	if from == 0 && !bytes.ContainsRune(text, '\n') { // its first line was never whole
		c.tear(text)
		return nil
	}
	return fmt.Errorf("%s does not end as an audit log does; look at it with `troupe audit verify`, and move it away", c.path)
}

// after goes on behind a file that is full.
func (c *chain) after(path string) error {
	file, err := os.Open(path) //nolint:gosec // it lies beside the one that the operator names
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return c.find(file, info.Size())
}

// numbered are the files that are full, in order, and the number of the last.
func numbered(path string) (files []string, last int, err error) {
	known, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, 0, err
	}
	for _, entry := range known {
		digits, ok := strings.CutPrefix(entry.Name(), filepath.Base(path)+".")
		if !ok || len(digits) != 6 {
			continue
		}
		if n, err := strconv.Atoi(digits); err == nil && n > 0 {
			files, last = append(files, filepath.Join(filepath.Dir(path), entry.Name())), max(last, n)
		}
	}
	slices.Sort(files)
	return files, last, nil
}
