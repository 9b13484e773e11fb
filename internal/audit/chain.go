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

// chain is the file, and where it ends. One goroutine uses it.
type chain struct {
	path  string
	most  int64 // bytes, after which the next file begins
	file  *os.File
	size  int64
	n     uint64 // number of the last line
	head  string // its hash
	torn  hash.Hash
	left  int64 // bytes behind the last line, which are none; torn is their hash
	dirty bool
}

// own is a line of the log itself.
func own(action string, facts map[string]string) line {
	return line{Kind: Own, Action: action, Time: time.Now().UTC(), Facts: facts}
}

// gap tells of entries that are not in the log.
func gap(lost int64) line {
	return own(loses, map[string]string{factEntries: strconv.FormatInt(lost, 10)})
}

// told adds to a line that there are bytes between the line before and this one, which are none.
func (c *chain) told(l line) line {
	l.Facts = maps.Clone(l.Facts)
	if l.Facts == nil {
		l.Facts = map[string]string{}
	}
	l.Facts[factTorn], l.Facts[factTornBytes] = hex.EncodeToString(c.torn.Sum(nil)), strconv.FormatInt(c.left, 10)
	return l
}

// add writes lines with one write, and returns how many are in the file. One that was written
// in part is said to be none by the next that is written.
func (c *chain) add(lines ...line) (written int, err error) {
	if len(lines) == 0 {
		return 0, nil
	}
	if c.size >= c.most {
		unturned := c.rotate() // and if it could not: better a file that is too large than none
		defer func() { err = errors.Join(err, unturned) }()
	}
	before := 0
	var text bytes.Buffer
	if c.left > 0 {
		text.WriteByte('\n')
		if lines[0].opens() {
			lines[0] = c.told(lines[0])
		} else {
			lines, before = append([]line{c.told(own(resumes, nil))}, lines...), 1
		}
	}
	type place struct {
		end  int
		hash string
	}
	var places []place
	n, head := c.n, c.head
	for _, l := range lines {
		n++
		l.N, l.Prev = n, head
		encoded, hash, err := l.encode()
		if err != nil {
			return 0, err
		}
		text.Write(encoded)
		head = hash
		places = append(places, place{text.Len(), hash})
	}
	count, err := c.file.Write(text.Bytes())
	c.size += int64(count)
	c.dirty = c.dirty || count > 0
	rest := 0 // where the bytes begin that are behind the last whole line
	for _, p := range places {
		if p.end > count {
			break
		}
		c.n, c.head, rest = c.n+1, p.hash, p.end
		c.left = 0
		c.torn.Reset()
		written++
	}
	c.tear(text.Bytes()[rest:count])
	return max(0, written-before), err
}

// tear notes bytes that are no line.
func (c *chain) tear(text []byte) {
	c.torn.Write(text)
	c.left += int64(len(text))
}

// sync brings what was written to the disk.
func (c *chain) sync() error {
	if !c.dirty {
		return nil
	}
	err := c.file.Sync()
	c.dirty = err != nil
	return err
}

func (c *chain) close() error {
	return errors.Join(c.sync(), c.file.Close())
}

// elsewhere reports whether the file that is written is not the one of that name any more.
func (c *chain) elsewhere() bool {
	written, err := c.file.Stat()
	if err != nil {
		return false // which its next line tells
	}
	there, err := os.Stat(c.path)
	return err != nil || !os.SameFile(written, there)
}

// rotate sets the file aside under the next number, and begins another one, with which the
// chain goes on. When it fails, the file is used on.
func (c *chain) rotate() error {
	if err := c.sync(); err != nil {
		return err
	}
	_, last, err := numbered(c.path)
	if err != nil {
		return err
	}
	aside := asideName(c.path, last+1)
	if err := os.Rename(c.path, aside); err != nil {
		return err
	}
	next, err := create(c.path)
	if err != nil {
		return errors.Join(err, os.Rename(aside, c.path))
	}
	_ = c.file.Close() // it is on the disk
	c.file, c.size = next, 0
	_, err = c.add(own(rotates, map[string]string{factAfter: filepath.Base(aside)}))
	return errors.Join(err, syncFolder(c.path))
}

// syncFolder brings the names of files to the disk.
func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	return folder.Sync()
}

// asideName is that of a file that is full.
func asideName(path string, number int) string { return fmt.Sprintf("%s.%06d", path, number) }
