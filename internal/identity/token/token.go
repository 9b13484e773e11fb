// Package token authenticates clients by tokens that an operator hands out. A file lists the clients with the
// SHA-256 of each token (guarantees S7), so reading the file does not reveal a token.
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

// Prefix begins every token, so that secret scanners recognize one.
const Prefix = "tr_"

// Entry is one client as the file lists it.
type Entry struct {
	Name    string        `yaml:"name"`              // names the client in logs and in the audit
	Tenant  string        `yaml:"tenant"`            // owns the objects that the client may touch
	Role    identity.Role `yaml:"role"`              // client or admin
	SHA256  string        `yaml:"sha256"`            // of the token as it is sent, in hex
	Expires time.Time     `yaml:"expires,omitempty"` // the token is rejected from then on (zero for never)
}

// document is the content of a token file.
type document struct {
	Tokens []Entry `yaml:"tokens"`
}

// New makes a token of 256 random bits. Only the result holds the token; the entry for the file holds its
// digest.
func New(e Entry) (secret.Value, Entry) {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails
	text := Prefix + base64.RawURLEncoding.EncodeToString(bits[:])
	digest := sha256.Sum256([]byte(text))
	e.SHA256 = hex.EncodeToString(digest[:])
	return secret.New(text), e
}

// Format returns the content of a token file with the entries.
func Format(entries ...Entry) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := encoder.Encode(document{entries})
	return b.Bytes(), errors.Join(err, encoder.Close())
}

// Check returns an error for the first invalid field of an entry. The error quotes no field, because a
// misplaced value may be a token.
func (e Entry) Check() error {
	switch digest, err := hex.DecodeString(e.SHA256); {
	case e.Name == "" || len(e.Name) > maxName || strings.ContainsFunc(e.Name, isUnprintable):
		return fmt.Errorf("name: it must be 1 to %d bytes without control characters", maxName)
	case identity.CheckTenant(e.Tenant) != nil:
		return errors.New("tenant: it must be " + identity.TenantForm)
	case strings.HasPrefix(e.Name, Prefix) || strings.HasPrefix(e.Tenant, Prefix): // logs name both
		return fmt.Errorf("name and tenant: neither may begin with %s, as tokens do; the token itself does not belong here", Prefix)
	case e.Role != identity.Client && e.Role != identity.Admin:
		return fmt.Errorf("role: it must be %s or %s", identity.Client, identity.Admin)
	case err != nil || len(digest) != sha256.Size:
		return errors.New("sha256: it must be the 64 hex digits that `troupe new token` prints; the token itself does not belong here")
	}
	return nil
}

const maxName = 128

func isUnprintable(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }

// entryList are the entries of a file with their decoded digests.
type entryList []entryWithDigest

type entryWithDigest struct {
	Entry
	digest [sha256.Size]byte
}

// parse reads a file. Its errors name an entry by its position in the list and quote nothing of it.
func parse(text []byte) (entryList, error) {
	var d document
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&d); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("it is not a list of tokens%s: want `tokens:` with entries of name, "+
			"tenant, role, sha256 and, if the token expires, expires, such as 2027-01-01T00:00:00Z", errorPosition(text, err))
	}
	var all entryList
	known := map[[sha256.Size]byte]int{} // digest to position
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

// errorPosition returns where a text is invalid, as far as that is known. Errors of yaml quote the text, so
// only a line number is taken from them.
func errorPosition(text []byte, err error) string {
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok && len(wrong.Errors) > 0 {
		if at := yamlErrorLine.FindStringSubmatch(wrong.Errors[0]); at != nil {
			return ", line " + at[1]
		}
	}
	broken := func(text []byte) bool { return yaml.Unmarshal(text, &yaml.Node{}) != nil }
	if broken(text) { // such errors name the start of the list, so search for the first line that breaks it
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

// yamlErrorLine matches the start of a yaml error with a line number.
var yamlErrorLine = regexp.MustCompile(`^line ([0-9]+): `)

// find returns the entry of a token, in a time that depends only on the length of the list.
func (all entryList) find(token string) (found Entry, ok bool) {
	digest := sha256.Sum256([]byte(token))
	for _, l := range all {
		if subtle.ConstantTimeCompare(digest[:], l.digest[:]) == 1 {
			found, ok = l.Entry, true
		}
	}
	return found, ok
}
