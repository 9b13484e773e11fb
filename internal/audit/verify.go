package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"
)

// Report is what a chain holds.
type Report struct {
	Lines       int
	First, Last uint64    // their numbers; from 1 on the chain is whole
	From, To    time.Time // when those were recorded
	Head        string    // hash of the last line
	Lost        int64     // entries that were never in it, as it says itself
	Torn        int       // places where a crash or a full disk left bytes that are no line, which it says itself
}

// BrokenError is where a chain does not hold.
type BrokenError struct {
	File string
	Line int // in the file, from 1; 0: the file as a whole
	Why  string
}

func (b *BrokenError) Error() string {
	if b.Line == 0 {
		return fmt.Sprintf("%s: %s", b.File, b.Why)
	}
	return fmt.Sprintf("%s:%d: %s", b.File, b.Line, b.Why)
}

// Verify reads the files of one chain, in whatever order they are given, and finds the first
// place where a line was changed, removed, added or moved: a BrokenError, with what is good
// before it in the report. Head is a hash that the chain must come to, known from elsewhere;
// empty: none is known, and lines that were cut off at the end do not show. Each is called for
// every line that is good; nil: nobody is. Files of different logs, and those of none, are broken.
func Verify(files []string, head string, each func(file string, n int, r Recorded)) (Report, error) {
	files, err := inOrder(files)
	if err != nil {
		return Report{}, err
	}
	v := &verifier{each: each, wanted: head, seen: head == ""}
	for _, file := range files {
		if err := v.read(file); err != nil {
			return v.report, err
		}
	}
	return v.report, v.end()
}

// Recorded is an entry as it was read.
type Recorded struct {
	Entry
	At   string // the part of the program that recorded it
	Time time.Time
}

// verifier goes through a chain.
type verifier struct {
	each   func(string, int, Recorded)
	report Report
	wanted string // a hash
	seen   bool   // the wanted one

	file   string
	good   int          // lines of the file
	junk   bytes.Buffer // bytes since the last line, which are none
	junkAt int
}

// most is how many bytes may be torn at one place.
const most = 8 << 20

// read goes on with a file.
func (v *verifier) read(path string) error {
	file, err := os.Open(path) //nolint:gosec // the caller names it
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return v.scan(path, file)
}

// end is what is wrong with the chain as a whole.
func (v *verifier) end() error {
	switch {
	case v.good == 0 && (v.junk.Len() > 0 || v.report.Lines == 0):
		return &BrokenError{v.file, 0, "no line in it is one of an audit log as it was written; is it one?"}
	case v.junk.Len() > 0:
		return &BrokenError{v.file, v.junkAt, "this is no line as it was written, and none behind it says that it was torn"}
	case !v.seen:
		return &BrokenError{v.file, 0, "no line has the hash of the head that is known: lines are missing at the end"}
	}
	return nil
}

// scan goes on with what is in a file.
func (v *verifier) scan(path string, file io.Reader) error {
	v.file, v.good = path, 0
	in, first := bufio.NewReader(file), true
	for at := 1; ; at++ {
		text, err := next(in)
		if len(text) > 0 {
			opened, broken := v.line(at, text, first)
			if broken != "" {
				return &BrokenError{path, at, broken}
			}
			first = first && !opened
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// next reads a line, or the beginning of one that is longer than may be torn.
func next(in *bufio.Reader) (text []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if text = append(text, part...); !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
		if len(text) > most {
			return text, nil
		}
	}
}

// line takes what stands in one line, and reports whether it is one, or why it cannot be there.
func (v *verifier) line(at int, text []byte, first bool) (ok bool, broken string) {
	l, hash, ok := decode(bytes.TrimSuffix(text, []byte("\n")))
	if !ok || text[len(text)-1] != '\n' {
		if v.junk.Len() == 0 {
			v.junkAt = at
		}
		if v.junk.Write(text); v.junk.Len() > most {
			return false, "there is too much here that is no line"
		}
		return false, ""
	}
	switch {
	case !v.explained(l):
		return true, fmt.Sprintf("line %d is not as it was written, and this one does not say that it was torn", v.junkAt)
	case first && !l.opens():
		return true, "the file does not begin with a line that opens it: lines are missing at its beginning"
	case v.report.Lines == 0 && l.N == 1 && l.Prev != origin:
		return true, "the first line follows another one"
	case first && v.report.Lines > 0 && l.N <= v.report.Last:
		return true, fmt.Sprintf("it begins with line %d of a log, and the files before it end at line %d: "+
			"they belong to different logs, or it is given twice; give the files of one log", l.N, v.report.Last)
	case v.report.Lines > 0 && l.N != v.report.Last+1:
		return true, fmt.Sprintf("line %d of the chain follows line %d", l.N, v.report.Last)
	case v.report.Lines > 0 && l.Prev != v.report.Head:
		return true, fmt.Sprintf("the line before, number %d of the chain, was another one when this one was written", v.report.Last)
	}
	v.take(at, l, hash)
	return true, ""
}

// explained reports whether the line says what the bytes before it are, if there are any.
func (v *verifier) explained(l line) bool {
	torn := l.Facts[factTorn]
	if v.junk.Len() == 0 {
		return torn == ""
	}
	if !l.opens() || torn == "" {
		return false
	}
	return torn == hashOf(bytes.TrimSuffix(v.junk.Bytes(), []byte("\n")))
}

// take adds a good line to the report.
func (v *verifier) take(at int, l line, hash string) {
	if v.junk.Len() > 0 {
		v.report.Torn++
		v.junk.Reset()
	}
	if v.report.Lines == 0 {
		v.report.First, v.report.From = l.N, l.Time
	}
	v.report.Lines, v.report.Last, v.report.To, v.report.Head = v.report.Lines+1, l.N, l.Time, hash
	v.seen = v.seen || hash == v.wanted
	v.good++
	if l.Kind == Own && l.Action == loses {
		lost, _ := strconv.ParseInt(l.Facts[factEntries], 10, 64) // its hash says that it is ours
		v.report.Lost += lost
	}
	if v.each != nil {
		v.each(v.file, at, Recorded{Entry{l.Kind, l.Actor, l.Action, l.Object, l.Result, l.Facts}, l.At, l.Time})
	}
}

// inOrder sorts files by the number of their first line. One that has none comes last.
func inOrder(files []string) ([]string, error) {
	type numbered struct {
		path string
		n    uint64
	}
	var all []numbered
	for _, path := range files {
		n, err := firstOf(path)
		if err != nil {
			return nil, err
		}
		all = append(all, numbered{path, n})
	}
	slices.SortStableFunc(all, func(a, b numbered) int {
		switch {
		case a.n-1 < b.n-1: // so that 0 is the largest
			return -1
		case a.n == b.n:
			return 0
		default:
			return 1
		}
	})
	sorted := make([]string, len(all))
	for i, f := range all {
		sorted[i] = f.path
	}
	return sorted, nil
}

// firstOf is the number of the first line of a file that is one; 0: there is none.
func firstOf(path string) (uint64, error) {
	file, err := os.Open(path) //nolint:gosec // the caller names it
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	in, read := bufio.NewReaderSize(file, maxLine), 0
	for {
		text, err := next(in)
		if read += len(text); read > 2*most {
			return 0, nil // which is found when it is read
		}
		if l, _, ok := decode(bytes.TrimSuffix(text, []byte("\n"))); ok {
			return l.N, nil
		}
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
