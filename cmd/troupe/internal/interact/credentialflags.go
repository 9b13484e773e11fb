package interact

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// credentialFlags holds the flags for the user on whose behalf a turn acts, and for that user's credentials. A
// credential itself is never an argument, because every user of the machine can list the arguments of a process.
type credentialFlags struct {
	Actor      string   `help:"User on whose behalf the tools of the turn act." placeholder:"NAME"`
	Credential []string `help:"A credential for the tools of this turn; it is never stored. May be repeated." placeholder:"NAME=env:VAR|file:PATH" sep:"none"`
}

// readAuth reads the credentials that the flags refer to. Its errors never quote a value that could be a
// credential.
func (c credentialFlags) readAuth() (*troupev1.Auth, error) {
	auth := execution.Auth{Actor: c.Actor, Credentials: map[string]secret.Value{}}
	for _, flag := range c.Credential {
		name, from, _ := strings.Cut(flag, "=")
		source, at, _ := strings.Cut(from, ":")
		if name == "" || at == "" || source != "env" && source != "file" {
			return nil, invalidCredential("want NAME=env:VAR or NAME=file:PATH, not the credential itself: every user of this machine " +
				"could read it from the list of processes")
		}
		if _, ok := auth.Credentials[name]; ok {
			return nil, invalidCredential("%s is given twice", name)
		}
		read := credentialFromEnv
		if source == "file" {
			read = credentialFromFile
		}
		text, err := read(at)
		switch {
		case err != nil:
			return nil, invalidCredential("%s: %v", name, err)
		case text == "":
			return nil, invalidCredential("%s: %s is empty", name, from)
		case len(text) > maxCredentialBytes:
			return nil, invalidCredential("%s: %s holds more than %d bytes", name, from, maxCredentialBytes)
		case !utf8.ValidString(text):
			return nil, invalidCredential("%s: %s is not UTF-8; encode it, for example as base64", name, from)
		}
		auth.Credentials[name] = secret.New(text)
	}
	return wire.AuthToProto(auth), nil
}

// repeatHint returns a reminder that a repeated request needs the same credentials (empty if there are none).
func (c credentialFlags) repeatHint() string {
	if len(c.Credential) == 0 {
		return ""
	}
	return ", and the same --credential"
}

// maxCredentialBytes is the maximum size of a credential in bytes. troupe.v1.Auth has the same limit.
const maxCredentialBytes = 16 << 10

func credentialFromEnv(name string) (string, error) {
	text, ok := os.LookupEnv(name)
	if !ok {
		return "", fmt.Errorf("the environment variable %s is not set", name)
	}
	return text, nil
}

// credentialFromFile reads a credential from a file. It removes a final newline, because editors and echo add one.
func credentialFromFile(path string) (string, error) {
	f, err := os.Open(path) //nolint:gosec // the caller names the file
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxCredentialBytes+3))
	return trimLineEnd(string(b)), err
}

// trimLineEnd removes one newline at the end of a text.
func trimLineEnd(text string) string { return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r") }

func invalidCredential(format string, args ...any) error {
	return failure.Newf(failure.UserInvalidInput, "troupe", "--credential: "+format, args...)
}
