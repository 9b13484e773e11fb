package audit

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// chain appends lines to the current file and remembers the number and hash of the last line. Only one goroutine
// may use it.
type chain struct {
	path       string
	maxBytes   int64 // file size in bytes at which the next file begins
	file       *os.File
	size       int64
	lastNumber uint64 // number of the last line
	lastHash   string // hash of the last line
	tornHash   hash.Hash
	tornBytes  int64 // number of bytes after the last line that form no complete line; tornHash hashes them
	needsSync  bool
}

// logLine returns a line that describes an event of the log itself.
func logLine(action string, facts map[string]string) line {
	return line{Kind: LogItself, Action: action, Time: time.Now().UTC(), Facts: facts}
}

// lossLine returns a line that contains the number of lost entries.
func lossLine(lost int64) line {
	return logLine(actionLost, map[string]string{factEntries: strconv.FormatInt(lost, 10)})
}

// withTornFacts returns the line with the hash and size of the torn bytes before it added to its facts.
func (c *chain) withTornFacts(l line) line {
	l.Facts = maps.Clone(l.Facts)
	if l.Facts == nil {
		l.Facts = map[string]string{}
	}
	l.Facts[factTorn], l.Facts[factTornBytes] = hex.EncodeToString(c.tornHash.Sum(nil)), strconv.FormatInt(c.tornBytes, 10)
	return l
}

// appendLines writes lines with one write and returns how many were written in full. If a line is written only in
// part, the next line contains the hash of that part, so that Verify accepts it.
func (c *chain) appendLines(lines ...line) (written int, err error) {
	if len(lines) == 0 {
		return 0, nil
	}
	if c.size >= c.maxBytes {
		rotateErr := c.rotate() // if this fails, the file grows beyond its limit
		defer func() { err = errors.Join(err, rotateErr) }()
	}
	before := 0
	var text bytes.Buffer
	if c.tornBytes > 0 {
		text.WriteByte('\n')
		if lines[0].canStartFile() {
			lines[0] = c.withTornFacts(lines[0])
		} else {
			lines, before = append([]line{c.withTornFacts(logLine(actionResume, nil))}, lines...), 1
		}
	}
	type encodedLine struct {
		end  int
		hash string
	}
	var encodedLines []encodedLine
	n, head := c.lastNumber, c.lastHash
	for _, l := range lines {
		n++
		l.Number, l.PrevHash = n, head
		encoded, hash, err := l.encode()
		if err != nil {
			return 0, err
		}
		text.Write(encoded)
		head = hash
		encodedLines = append(encodedLines, encodedLine{text.Len(), hash})
	}
	count, err := c.file.Write(text.Bytes())
	c.size += int64(count)
	c.needsSync = c.needsSync || count > 0
	rest := 0 // offset after the last complete line
	for _, p := range encodedLines {
		if p.end > count {
			break
		}
		c.lastNumber, c.lastHash, rest = c.lastNumber+1, p.hash, p.end
		c.tornBytes = 0
		c.tornHash.Reset()
		written++
	}
	c.addTornBytes(text.Bytes()[rest:count])
	return max(0, written-before), err
}

// addTornBytes records bytes at the end of the file that form no complete line.
func (c *chain) addTornBytes(text []byte) {
	c.tornHash.Write(text)
	c.tornBytes += int64(len(text))
}

// sync flushes written lines to disk.
func (c *chain) sync() error {
	if !c.needsSync {
		return nil
	}
	err := c.file.Sync()
	c.needsSync = err != nil
	return err
}

func (c *chain) close() error {
	return errors.Join(c.sync(), c.file.Close())
}

// hasMoved reports whether the path no longer names the file that is being written.
func (c *chain) hasMoved() bool {
	written, err := c.file.Stat()
	if err != nil {
		return false // the next write reports the error
	}
	there, err := os.Stat(c.path)
	return err != nil || !os.SameFile(written, there)
}

// rotate renames the full file to the next number and continues the chain in a new one. If it fails, the old
// file stays in use.
func (c *chain) rotate() error {
	if err := c.sync(); err != nil {
		return err
	}
	_, last, err := listFullFiles(c.path)
	if err != nil {
		return err
	}
	aside := fullFileName(c.path, last+1)
	if err := os.Rename(c.path, aside); err != nil {
		return err
	}
	next, err := openLockedFile(c.path)
	if err != nil {
		return errors.Join(err, os.Rename(aside, c.path))
	}
	_ = c.file.Close() // it was synced
	c.file, c.size = next, 0
	_, err = c.appendLines(logLine(actionRotate, map[string]string{factAfter: filepath.Base(aside)}))
	return errors.Join(err, syncFolder(c.path))
}

// syncFolder flushes the folder that contains path to disk, so that a new or renamed file survives a crash.
func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	return folder.Sync()
}

// fullFileName returns the name of the full file with the given number.
func fullFileName(path string, number int) string { return fmt.Sprintf("%s.%06d", path, number) }
