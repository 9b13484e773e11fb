// Package token tells clients apart by tokens that an operator gives out. A file lists who
// they are, with the SHA-256 of each token in the place of the token (guarantees S7), so that
// whoever reads the file can be nobody of them.
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

// Prefix begins every token, so that those who search for leaked secrets know one when they
// see it.
const Prefix = "tr_"

// Entry is one client as the file lists it.
type Entry struct {
	Name    string        `yaml:"name"`              // whom logs and the audit name
	Tenant  string        `yaml:"tenant"`            // whose objects the client may touch
	Role    identity.Role `yaml:"role"`              // client or admin
	SHA256  string        `yaml:"sha256"`            // of the token as it is sent, in hex
	Expires time.Time     `yaml:"expires,omitempty"` // from when on it proves nothing; zero: never
}

// document is a file of tokens.
type document struct {
	Tokens []Entry `yaml:"tokens"`
}

// New makes a token of 256 random bits. It is nowhere but in the answer: the entry for the file
// has its digest.
func New(e Entry) (secret.Value, Entry) {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // it does not fail
	text := Prefix + base64.RawURLEncoding.EncodeToString(bits[:])
	digest := sha256.Sum256([]byte(text))
	e.SHA256 = hex.EncodeToString(digest[:])
	return secret.New(text), e
}

// Format is a file with the entries.
func Format(entries ...Entry) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := encoder.Encode(document{entries})
	return b.Bytes(), errors.Join(err, encoder.Close())
}

// Check names what an entry cannot have. It quotes nothing of it: what is in the wrong place may be
// a token.
func (e Entry) Check() error {
	switch digest, err := hex.DecodeString(e.SHA256); {
	case e.Name == "" || len(e.Name) > maxName || strings.ContainsFunc(e.Name, unseemly):
		return fmt.Errorf("name: it must be 1 to %d letters, without any that cannot be seen", maxName)
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

func unseemly(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }

// list are the entries of a file, with their digests.
type list []listed

type listed struct {
	Entry
	digest [sha256.Size]byte
}

// parse reads a file. Its errors say which entry is meant by its place in the list, and quote nothing.
func parse(text []byte) (list, error) {
	var d document
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&d); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("it is not a list of tokens%s: want `tokens:` with entries of name, "+
			"tenant, role, sha256 and, if the token expires, expires, such as 2027-01-01T00:00:00Z", place(text, err))
	}
	var all list
	known := map[[sha256.Size]byte]int{} // in which places
	for i, e := range d.Tokens {
		if err := e.Check(); err != nil {
			return nil, fmt.Errorf("token %d: %w", i+1, err)
		}
		l := listed{Entry: e}
		_, _ = hex.Decode(l.digest[:], []byte(e.SHA256)) // it was checked
		if other, twice := known[l.digest]; twice {
			return nil, fmt.Errorf("token %d is token %d once more; each client needs its own", i+1, other)
		}
		known[l.digest] = i + 1
		all = append(all, l)
	}
	return all, nil
}

// place says where a text is no list, as far as that can be told. Errors of yaml quote the text, so
// nothing but a number is taken from them, from where no text can stand.
func place(text []byte, err error) string {
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok && len(wrong.Errors) > 0 {
		if at := line.FindStringSubmatch(wrong.Errors[0]); at != nil {
			return ", line " + at[1]
		}
	}
	broken := func(text []byte) bool { return yaml.Unmarshal(text, &yaml.Node{}) != nil }
	if broken(text) { // errors say where what is broken begins, which is the list as a whole
		lines := bytes.SplitAfter(text, []byte("\n"))
		at := sort.Search(len(lines)-1, func(n int) bool { return broken(bytes.Join(lines[:n+1], nil)) })
		return fmt.Sprintf(", near line %d", at+1)
	}
	var d struct{ Tokens []yaml.Node }
	_ = yaml.Unmarshal(text, &d)
	for i, n := range d.Tokens { // a time that is none has no line in its error
		if n.Decode(&Entry{}) != nil {
			return fmt.Sprintf(", token %d from line %d on", i+1, n.Line)
		}
	}
	return ""
}

// line is how an error of yaml begins that knows where.
var line = regexp.MustCompile(`^line ([0-9]+): `)

// of finds the entry of a token, in a time that depends on nothing but how many there are.
func (all list) of(token string) (found Entry, ok bool) {
	digest := sha256.Sum256([]byte(token))
	for _, l := range all {
		if subtle.ConstantTimeCompare(digest[:], l.digest[:]) == 1 {
			found, ok = l.Entry, true
		}
	}
	return found, ok
}
