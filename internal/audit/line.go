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

// line is an entry as it is stored. A stored line ends with a hash over all of its bytes before the hash field.
type line struct {
	Number    uint64            `json:"n"`    // consecutive, from 1
	PrevHash  string            `json:"prev"` // hash of the previous line
	Time      time.Time         `json:"time"`
	Component string            `json:"at,omitempty"` // component of the program
	Kind      Kind              `json:"kind"`
	Actor     string            `json:"actor,omitempty"`
	Action    string            `json:"action"`
	Object    string            `json:"object,omitempty"`
	Result    string            `json:"result,omitempty"`
	Facts     map[string]string `json:"facts,omitempty"`
}

// originHash is the previous hash of the first line of a log.
var originHash = strings.Repeat("0", 2*sha256.Size)

const (
	hashField       = `,"hash":"`
	lineEnd         = `"}`
	hashSuffixBytes = len(hashField) + 2*sha256.Size + len(lineEnd)
	maxTextChars    = 256 // characters of a field
	maxFacts        = 16
	maxLineBytes    = 64 << 10 // limit of a line in bytes
)

// These are the actions of lines about the log itself.
const (
	actionBegin  = "begin"  // the first line of a log
	actionResume = "resume" // a process continues the file, after a restart or a disk failure
	actionRotate = "rotate" // the first line of the next file
	actionLost   = "lost"   // entries were lost
	actionEnd    = "end"    // the process stopped gracefully
)

// These are the facts of lines about the log itself.
const (
	factEntries   = "entries"    // number of lost entries
	factAfter     = "after"      // name of the previous file
	factTorn      = "torn"       // hash of the bytes between the previous line and this one that form no line
	factTornBytes = "torn_bytes" // number of those bytes
)

// canStartFile reports whether the line may be the first line of a file.
func (l line) canStartFile() bool {
	return l.Kind == LogItself && slices.Contains([]string{actionBegin, actionResume, actionRotate}, l.Action)
}

// encode returns the line as it is stored, including its line break, and the hash of the line.
func (l line) encode() (text []byte, hash string, err error) {
	text, err = json.Marshal(l)
	if err != nil {
		return nil, "", err
	}
	text = bytes.TrimSuffix(text, []byte("}"))
	hash = hashText(text)
	return append(text, hashField+hash+lineEnd+"\n"...), hash, nil
}

// decodeLine parses a line without its line break. It returns false if the line does not match its hash.
func decodeLine(text []byte) (l line, hash string, ok bool) {
	if len(text) <= hashSuffixBytes {
		return l, "", false
	}
	body := text[:len(text)-hashSuffixBytes]
	hash = hashText(body)
	if string(text[len(body):]) != hashField+hash+lineEnd {
		return l, "", false
	}
	return l, hash, json.Unmarshal(text, &l) == nil
}

// CheckHash returns an error unless text has the form of a hash: 64 lower-case hex digits.
func CheckHash(text string) error {
	if raw, err := hex.DecodeString(text); err != nil || len(raw) != sha256.Size || strings.ToLower(text) != text {
		return fmt.Errorf("a hash has %d digits of 0-9 and a-f", 2*sha256.Size)
	}
	return nil
}

func hashText(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// sanitize makes a text safe to print on one line. It replaces every character that moves the cursor of a terminal
// or changes the writing direction, and cuts the text after 256 characters.
func sanitize(text string) string {
	if len(text) > 4*maxTextChars {
		text = text[:4*maxTextChars]
	}
	var out strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > maxTextChars {
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

// lineFromEntry returns the line that stores an entry.
func lineFromEntry(r queuedEntry) line {
	l := line{
		Time: r.recordedAt.UTC(), Component: sanitize(r.component), Kind: Kind(sanitize(string(r.Kind))), Actor: sanitize(r.Actor), Action: sanitize(r.Action),
		Object: sanitize(r.Object), Result: sanitize(r.Result),
	}
	for i, key := range slices.Sorted(maps.Keys(r.Facts)) {
		if i == maxFacts {
			break
		}
		if l.Facts == nil {
			l.Facts = map[string]string{}
		}
		l.Facts[sanitize(key)] = sanitize(r.Facts[key])
	}
	return l
}
