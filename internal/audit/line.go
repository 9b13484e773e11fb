package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// line is how an entry is stored. Its hash stands behind it, as the last field: that of all
// bytes of the line before it.
type line struct {
	N      uint64            `json:"n"`    // from 1, without a gap
	Prev   string            `json:"prev"` // hash of the line before
	Time   time.Time         `json:"time"`
	At     string            `json:"at,omitempty"` // part of the program
	Kind   Kind              `json:"kind"`
	Actor  string            `json:"actor,omitempty"`
	Action string            `json:"action"`
	Object string            `json:"object,omitempty"`
	Result string            `json:"result,omitempty"`
	Facts  map[string]string `json:"facts,omitempty"`
}

// origin is the hash before the first line.
var origin = strings.Repeat("0", 2*sha256.Size)

const (
	hashField = `,"hash":"`
	lineEnd   = `"}`
	hashSpace = len(hashField) + 2*sha256.Size + len(lineEnd)
	maxText   = 256 // characters of a field
	maxFacts  = 16
	maxLine   = 64 << 10 // bytes that no line exceeds
)

// The actions of lines of the log itself.
const (
	begins  = "begin"  // the first line of all
	resumes = "resume" // a process goes on with the file, or one does after its disk had failed
	rotates = "rotate" // the first line of the next file
	loses   = "lost"   // entries that are not in the log
	ends    = "end"    // the process stopped in order
)

// The facts of such lines.
const (
	factEntries   = "entries"    // how many are lost
	factAfter     = "after"      // the name of the file before
	factTorn      = "torn"       // hash of the bytes between this line and the one before it, which are none
	factTornBytes = "torn_bytes" // how many they are
)

// opens reports whether a line may be the first of a file.
func (l line) opens() bool {
	return l.Kind == Own && slices.Contains([]string{begins, resumes, rotates}, l.Action)
}

// encode returns the line as it is stored, with its end, and its hash.
func (l line) encode() (text []byte, hash string, err error) {
	text, err = json.Marshal(l)
	if err != nil {
		return nil, "", err
	}
	text = bytes.TrimSuffix(text, []byte("}"))
	hash = hashOf(text)
	return append(text, hashField+hash+lineEnd+"\n"...), hash, nil
}

// decode reads a line without its end. It is false when that is not as it was written.
func decode(text []byte) (l line, hash string, ok bool) {
	if len(text) <= hashSpace {
		return l, "", false
	}
	body := text[:len(text)-hashSpace]
	hash = hashOf(body)
	if string(text[len(body):]) != hashField+hash+lineEnd {
		return l, "", false
	}
	return l, hash, json.Unmarshal(text, &l) == nil
}

// CheckHash reports that a text is no hash of a line, which is 64 hex digits as Verify knows them.
func CheckHash(text string) error {
	if raw, err := hex.DecodeString(text); err != nil || len(raw) != sha256.Size || strings.ToLower(text) != text {
		return fmt.Errorf("a hash has %d digits of 0-9 and a-f", 2*sha256.Size)
	}
	return nil
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// clean makes a text that cannot pass for more than it is: one line, nothing that moves a
// terminal's cursor or turns the direction of writing.
func clean(text string) string {
	if len(text) > 4*maxText {
		text = text[:4*maxText]
	}
	var out strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > maxText {
			out.WriteRune('…')
			break
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		out.WriteRune(r)
	}
	return out.String()
}

// lineOf is what is stored of an entry.
func lineOf(r recorded) line {
	l := line{
		Time: r.at.UTC(), At: clean(r.by), Kind: Kind(clean(string(r.Kind))), Actor: clean(r.Actor), Action: clean(r.Action),
		Object: clean(r.Object), Result: clean(r.Result),
	}
	for i, key := range slices.Sorted(maps.Keys(r.Facts)) {
		if i == maxFacts {
			break
		}
		if l.Facts == nil {
			l.Facts = map[string]string{}
		}
		l.Facts[clean(key)] = clean(r.Facts[key])
	}
	return l
}
