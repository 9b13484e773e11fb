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

// DefaultMaxBytes is the default size at which a file is full and the log continues in a new one.
const DefaultMaxBytes = 64 << 20

// Config configures a log.
type Config struct {
	// Path is the current file. Full files are kept in the same folder as PATH.000001 and so on. They are never
	// removed. The folder is created if it is missing.
	Path string
	// MaxBytes is the approximate size limit of a file (0 means 64 MiB).
	MaxBytes int64
	// Name is the component in lines that are recorded without another name. It is the name of the program.
	Name string
	// Log receives the position at the end of the chain, and errors about lost entries.
	Log *zap.Logger
	// Meter counts recorded and lost entries.
	Meter metric.Meter
}

// New opens an audit log and continues the chain in its file. Only the file's owner may read it, and only one
// process may write it. The caller must close the log.
func New(cfg Config) (*Log, error) {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	entries, err := cfg.Meter.Int64Counter("troupe.audit.entries", metric.WithDescription("Entries for the audit log, by kind."))
	if err != nil {
		return nil, err
	}
	missing, err := cfg.Meter.Int64Counter("troupe.audit.lost",
		metric.WithDescription("Entries missing from the audit log, because its disk failed or was too slow."))
	if err != nil {
		return nil, err
	}
	c, err := openChain(cfg.Path, cfg.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	q := &queue{
		chain: c, log: cfg.Log, entryCounter: entries, lostCounter: missing,
		waiting: make(chan queuedEntry, queueSize), stop: make(chan struct{}), done: make(chan struct{}),
	}
	q.log.Info("audit log opened", q.positionFields()...)
	go q.run()
	return &Log{component: cfg.Name, queue: q}, nil
}

// openChain finds the end of the chain and writes a line that continues it.
func openChain(path string, maxBytes int64) (_ *chain, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	c := &chain{path: path, maxBytes: maxBytes, lastHash: originHash, tornHash: sha256.New()}
	if c.file, err = openLockedFile(path); err != nil {
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
	aside, _, err := listFullFiles(path)
	switch {
	case err != nil:
		return nil, err
	case c.size > 0:
		err = c.findLastLine(c.file, c.size)
	case len(aside) > 0: // the process stopped during a rotation
		err = c.continueAfter(aside[len(aside)-1])
	}
	if err != nil {
		return nil, err
	}
	first := logLine(actionResume, nil)
	if c.lastNumber == 0 {
		first = logLine(actionBegin, nil)
	}
	_, err = c.appendLines(first)
	return c, errors.Join(err, c.sync(), syncFolder(path))
}

// openLockedFile opens a file for appending, creates it if it is missing, and locks it for this process.
func openLockedFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%s is in use by another process; name another file: %w", path, err)
	}
	return file, nil
}

// searchWindowBytes is the number of bytes at the end of a file in which the last line is searched.
const searchWindowBytes = 4 << 20

// findLastLine finds the last valid line of a file. It records the bytes after that line as torn.
func (c *chain) findLastLine(file io.ReaderAt, size int64) error {
	from := max(0, size-searchWindowBytes)
	text := make([]byte, size-from)
	if _, err := file.ReadAt(text, from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for end := bytes.LastIndexByte(text, '\n'); end >= 0; {
		begin := bytes.LastIndexByte(text[:end], '\n') + 1
		if l, hash, ok := decodeLine(text[begin:end]); ok {
			c.lastNumber, c.lastHash = l.Number, hash
			c.addTornBytes(text[end+1:])
			return nil
		}
		end = begin - 1
	}
	if from == 0 && !bytes.ContainsRune(text, '\n') { // the first line was torn
		c.addTornBytes(text)
		return nil
	}
	return fmt.Errorf("%s does not end like an audit log; check it with `troupe audit verify`, and move it away", c.path)
}

// continueAfter continues the chain of a full file in the current file.
func (c *chain) continueAfter(path string) error {
	file, err := os.Open(path) //nolint:gosec // it lies beside the one that the operator names
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return c.findLastLine(file, info.Size())
}

// listFullFiles returns the full files in order, and the number of the last one.
func listFullFiles(path string) (files []string, last int, err error) {
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
