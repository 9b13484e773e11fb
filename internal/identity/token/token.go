// Package token authenticates clients by tokens that an operator issues. A file lists the clients with the SHA-256
// digests of their tokens (guarantee S7), so reading the file reveals no token.
package token

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// Prefix is the beginning of every token, so that secret scanners can recognize tokens.
const Prefix = "tr_"

// Entry is one client in a token file.
type Entry struct {
	Name    string        `yaml:"name"`              // name of the client in logs and in the audit log
	Tenant  string        `yaml:"tenant"`            // tenant that owns the objects of the client
	Role    identity.Role `yaml:"role"`              // client or admin
	SHA256  string        `yaml:"sha256"`            // digest of the token as sent, in hex
	Expires time.Time     `yaml:"expires,omitempty"` // time from which the token is rejected (zero for never)
}

// fileContent is the YAML content of a token file.
type fileContent struct {
	Tokens []Entry `yaml:"tokens"`
}

// New creates a token with 256 random bits and its entry for the token file. The entry contains only the digest of
// the token.
func New(e Entry) (secret.Value, Entry) {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails
	text := Prefix + base64.RawURLEncoding.EncodeToString(bits[:])
	digest := sha256.Sum256([]byte(text))
	e.SHA256 = hex.EncodeToString(digest[:])
	return secret.New(text), e
}

// FormatFile returns the content of a token file that contains the entries.
func FormatFile(entries ...Entry) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := encoder.Encode(fileContent{entries})
	return b.Bytes(), errors.Join(err, encoder.Close())
}

// Check returns an error for the first invalid field of an entry. The error quotes no value, because a misplaced
// value may be a token.
func (e Entry) Check() error {
	switch digest, err := hex.DecodeString(e.SHA256); {
	case e.Name == "" || len(e.Name) > maxNameBytes || strings.ContainsFunc(e.Name, isUnprintable):
		return fmt.Errorf("name: it must be 1 to %d bytes without control characters", maxNameBytes)
	case identity.CheckTenant(e.Tenant) != nil:
		return errors.New("tenant: it must be " + identity.TenantForm)
	case strings.HasPrefix(e.Name, Prefix) || strings.HasPrefix(e.Tenant, Prefix): // logs contain both
		return fmt.Errorf("name and tenant: neither may begin with %s, as tokens do; the token itself does not belong here", Prefix)
	case e.Role != identity.Client && e.Role != identity.Admin:
		return fmt.Errorf("role: it must be %s or %s", identity.Client, identity.Admin)
	case err != nil || len(digest) != sha256.Size:
		return errors.New("sha256: it must be the 64 hex digits that `troupe new token` prints; the token itself does not belong here")
	}
	return nil
}

const maxNameBytes = 128

func isUnprintable(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }

// entryList is the list of entries in a file, with decoded digests.
type entryList []entryWithDigest

type entryWithDigest struct {
	Entry
	digest [sha256.Size]byte
}

// parseFile parses the content of a token file. Its errors identify an entry by its position in the list and quote
// none of its values.
func parseFile(text []byte) (entryList, error) {
	var d fileContent
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&d); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("it is not a list of tokens%s: want `tokens:` with entries of name, "+
			"tenant, role, sha256 and, if the token expires, expires, such as 2027-01-01T00:00:00Z", errorPosition(text, err))
	}
	var all entryList
	known := map[[sha256.Size]byte]int{} // position of each digest
	for i, e := range d.Tokens {
		if err := e.Check(); err != nil {
			return nil, fmt.Errorf("token %d: %w", i+1, err)
		}
		l := entryWithDigest{Entry: e}
		_, _ = hex.Decode(l.digest[:], []byte(e.SHA256)) // checked by Check
		if other, twice := known[l.digest]; twice {
			return nil, fmt.Errorf("token %d repeats token %d; each client needs its own", i+1, other)
		}
		known[l.digest] = i + 1
		all = append(all, l)
	}
	return all, nil
}

// errorPosition returns the position of a yaml error in the file, if it is known. Only the line number is taken
// from the error, because yaml errors quote the text.
func errorPosition(text []byte, err error) string {
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok && len(wrong.Errors) > 0 {
		if at := yamlErrorLine.FindStringSubmatch(wrong.Errors[0]); at != nil {
			return ", line " + at[1]
		}
	}
	broken := func(text []byte) bool { return yaml.Unmarshal(text, &yaml.Node{}) != nil }
	if broken(text) { // such errors give only the start of the list, so search for the first invalid line
		lines := bytes.SplitAfter(text, []byte("\n"))
		at := sort.Search(len(lines)-1, func(n int) bool { return broken(bytes.Join(lines[:n+1], nil)) })
		return fmt.Sprintf(", near line %d", at+1)
	}
	var d struct{ Tokens []yaml.Node }
	_ = yaml.Unmarshal(text, &d)
	for i, n := range d.Tokens { // an invalid time has no line in its error
		if n.Decode(&Entry{}) != nil {
			return fmt.Sprintf(", token %d from line %d on", i+1, n.Line)
		}
	}
	return ""
}

// yamlErrorLine matches the beginning of a yaml error that contains a line number.
var yamlErrorLine = regexp.MustCompile(`^line ([0-9]+): `)

// findEntry returns the entry of a token. The time it takes depends only on the length of the list, so it reveals
// nothing about the token.
func (e entryList) findEntry(token string) (found Entry, ok bool) {
	digest := sha256.Sum256([]byte(token))
	for _, l := range e {
		if subtle.ConstantTimeCompare(digest[:], l.digest[:]) == 1 {
			found, ok = l.Entry, true
		}
	}
	return found, ok
}
