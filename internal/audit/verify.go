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

// Report summarizes a verified chain.
type Report struct {
	Lines       int
	First, Last uint64    // numbers of the first and last line (a complete chain starts at 1)
	From, To    time.Time // times of the first and last line
	Head        string    // hash of the last line
	LostEntries int64     // number of entries that were lost
	TornPlaces  int       // number of places that a crash or a full disk tore
}

// BrokenError says where and why a chain is broken.
type BrokenError struct {
	File   string
	Line   int // in the file, from 1 (0 for the file as a whole)
	Reason string
}

func (b *BrokenError) Error() string {
	if b.Line == 0 {
		return fmt.Sprintf("%s: %s", b.File, b.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", b.File, b.Line, b.Reason)
}

// Verify reads the files of one chain, in any order, and finds the first line that was changed, removed, added or
// moved. It returns a report of the valid lines before that line, and a BrokenError with its place. If head is not
// empty, a line of the chain must have that hash. Without a head, missing lines at the end stay undetected. Verify
// calls each for every valid line, unless each is nil. Files of different logs, and files that are not audit logs,
// also yield a BrokenError.
func Verify(files []string, head string, each func(file string, n int, r RecordedEntry)) (Report, error) {
	files, err := sortFiles(files)
	if err != nil {
		return Report{}, err
	}
	v := &verifier{onEntry: each, wantedHead: head, foundHead: head == ""}
	for _, file := range files {
		if err := v.verifyFile(file); err != nil {
			return v.report, err
		}
	}
	return v.report, v.checkEnd()
}

// RecordedEntry is an entry read from a log, with its component and time.
type RecordedEntry struct {
	Entry
	Component string // component that recorded the entry
	Time      time.Time
}

// verifier verifies the files of a chain one after another and builds the report.
type verifier struct {
	onEntry    func(string, int, RecordedEntry)
	report     Report
	wantedHead string // a hash
	foundHead  bool   // whether the wanted hash was found

	file       string
	validLines int          // valid lines of the file
	torn       bytes.Buffer // bytes since the last valid line that form no line
	tornLine   int
}

// maxTornBytes is the largest number of torn bytes accepted at one place.
const maxTornBytes = 8 << 20

// verifyFile opens a file and verifies its content.
func (v *verifier) verifyFile(path string) error {
	file, err := os.Open(path) //nolint:gosec // the caller names it
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return v.verifyContent(path, file)
}

// checkEnd returns an error if the chain as a whole is invalid, for example because its end is missing.
func (v *verifier) checkEnd() error {
	switch {
	case v.validLines == 0 && (v.torn.Len() > 0 || v.report.Lines == 0):
		return &BrokenError{v.file, 0, "the file has no valid line of an audit log; check that it is one"}
	case v.torn.Len() > 0:
		return &BrokenError{v.file, v.tornLine, "this line was changed, and no later line says that it was torn"}
	case !v.foundHead:
		return &BrokenError{v.file, 0, "no line has the hash of --head: lines are missing at the end"}
	}
	return nil
}

// verifyContent verifies the lines of one file.
func (v *verifier) verifyContent(path string, file io.Reader) error {
	v.file, v.validLines = path, 0
	in, first := bufio.NewReader(file), true
	for at := 1; ; at++ {
		text, err := readLine(in)
		if len(text) > 0 {
			opened, broken := v.verifyLine(at, text, first)
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

// readLine reads one line, but not much more than maxTornBytes.
func readLine(in *bufio.Reader) (text []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if text = append(text, part...); !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
		if len(text) > maxTornBytes {
			return text, nil
		}
	}
}

// verifyLine verifies one line of a file. ok is whether the text is a valid line at all, and broken is why the
// line does not fit at this place (empty if it fits).
func (v *verifier) verifyLine(at int, text []byte, first bool) (ok bool, broken string) {
	l, hash, ok := decodeLine(bytes.TrimSuffix(text, []byte("\n")))
	if !ok || text[len(text)-1] != '\n' {
		if v.torn.Len() == 0 {
			v.tornLine = at
		}
		if v.torn.Write(text); v.torn.Len() > maxTornBytes {
			return false, "too many bytes here form no line"
		}
		return false, ""
	}
	switch {
	case !v.explainsTornBytes(l):
		return true, fmt.Sprintf("line %d was changed, and this line does not say that it was torn", v.tornLine)
	case first && !l.canStartFile():
		return true, "the file does not begin with a line that opens it: lines are missing at its beginning"
	}
	if broken := v.brokenLink(l, first); broken != "" {
		return true, broken
	}
	v.addToReport(at, l, hash)
	return true, ""
}

// brokenLink returns why a line does not follow the line before it in the chain (empty if it does).
func (v *verifier) brokenLink(l line, first bool) string {
	switch {
	case v.report.Lines == 0 && (l.Number != 1 || l.PrevHash == originHash):
		return ""
	case v.report.Lines == 0:
		return "the first line follows another one"
	case first && l.Number <= v.report.Last:
		return fmt.Sprintf("it begins with line %d of a log, and the files before it end at line %d: "+
			"they belong to different logs, or it is given twice; give the files of one log", l.Number, v.report.Last)
	case l.Number != v.report.Last+1:
		return fmt.Sprintf("line %d of the chain follows line %d", l.Number, v.report.Last)
	case l.PrevHash != v.report.Head:
		return fmt.Sprintf("the previous line, number %d of the chain, was changed after this line was written", v.report.Last)
	}
	return ""
}

// explainsTornBytes reports whether the line contains the hash of the torn bytes before it, or whether there are
// no torn bytes.
func (v *verifier) explainsTornBytes(l line) bool {
	torn := l.Facts[factTorn]
	if v.torn.Len() == 0 {
		return torn == ""
	}
	if !l.canStartFile() || torn == "" {
		return false
	}
	return torn == hashText(bytes.TrimSuffix(v.torn.Bytes(), []byte("\n")))
}

// addToReport adds a valid line to the report.
func (v *verifier) addToReport(at int, l line, hash string) {
	if v.torn.Len() > 0 {
		v.report.TornPlaces++
		v.torn.Reset()
	}
	if v.report.Lines == 0 {
		v.report.First, v.report.From = l.Number, l.Time
	}
	v.report.Lines, v.report.Last, v.report.To, v.report.Head = v.report.Lines+1, l.Number, l.Time, hash
	v.foundHead = v.foundHead || hash == v.wantedHead
	v.validLines++
	if l.Kind == LogItself && l.Action == actionLost {
		lost, _ := strconv.ParseInt(l.Facts[factEntries], 10, 64) // valid, because the hash of the line is
		v.report.LostEntries += lost
	}
	if v.onEntry != nil {
		v.onEntry(v.file, at, RecordedEntry{Entry{l.Kind, l.Actor, l.Action, l.Object, l.Result, l.Facts}, l.Component, l.Time})
	}
}

// sortFiles sorts files by the number of their first valid line. Files without a valid line come last.
func sortFiles(files []string) ([]string, error) {
	type numbered struct {
		path string
		n    uint64
	}
	var all []numbered
	for _, path := range files {
		n, err := firstLineNumber(path)
		if err != nil {
			return nil, err
		}
		all = append(all, numbered{path, n})
	}
	slices.SortStableFunc(all, func(a, b numbered) int {
		switch {
		case a.n-1 < b.n-1: // subtracting makes 0 the largest
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

// firstLineNumber returns the number of the first valid line of a file (0 if there is none).
func firstLineNumber(path string) (uint64, error) {
	file, err := os.Open(path) //nolint:gosec // the caller names it
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	in, read := bufio.NewReaderSize(file, maxLineBytes), 0
	for {
		text, err := readLine(in)
		if read += len(text); read > 2*maxTornBytes {
			return 0, nil // verifyFile reports the error
		}
		if l, _, ok := decodeLine(bytes.TrimSuffix(text, []byte("\n"))); ok {
			return l.Number, nil
		}
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
