package tool

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// WithLogin declares a credential without which the tool cannot run (LP-37):
//
//	tool.WithLogin(execution.Login{Name: "github", Prompt: "A token that may read issues.", URL: "https://github.com/settings/tokens"}, issues)
//
// The tool reads it with execution.Credential. If the turn did not bring it (LP-18), the call waits before it runs
// and the turn ends. The answer brings the credential, sealed, for this tool alone and for the rest of the turn.
// Its name has 1 to 64 letters, digits, dots, hyphens and underscores. A tool that its client runs, or that is an
// agent, cannot have a login.
func WithLogin(login execution.Login, t Tool) Tool {
	return newDecoratedTool(decoratedTool{Tool: t, effect: EffectOf(t), login: &login}, t)
}

// LoginOf returns the credential that a tool requires, also if the login was declared inside WithEffect or WithScope.
func LoginOf(t Tool) (execution.Login, bool) {
	var w *decoratedTool
	switch t := t.(type) {
	case *decoratedTool:
		w = t
	case *decoratedStarter:
		w = &t.decoratedTool
	default:
		return execution.Login{}, false
	}
	if w.login != nil {
		return *w.login, true
	}
	return LoginOf(w.Tool)
}

// LoginRejected returns the error that a tool reports if its credential was rejected, for example because it has
// expired. The model reads why. The credential is dropped for the rest of the turn, so the next call of the tool
// waits for a new one.
func LoginRejected(name, why string) error { return &rejectedLoginError{name, why} }

type rejectedLoginError struct{ name, why string }

func (r *rejectedLoginError) Error() string {
	return fmt.Sprintf("the credential %s was not taken: %s; call the tool again, and the user is asked for another one", r.name, r.why)
}

// RejectedLogin returns the name of the rejected credential if err came from LoginRejected. Otherwise it reports
// false.
func RejectedLogin(err error) (string, bool) {
	if r, ok := errors.AsType[*rejectedLoginError](err); ok {
		return r.name, true
	}
	return "", false
}

// Maximum sizes of the fields of a Login, in bytes.
const (
	maxPrompt = 1 << 10
	maxURL    = 2 << 10
)

var loginName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// loginProblem describes what is wrong with a login. It returns an empty text for a valid one.
func loginProblem(l execution.Login) string {
	at, err := url.Parse(l.URL)
	switch {
	case !loginName.MatchString(l.Name):
		return fmt.Sprintf("name %q: use 1 to 64 letters, digits, dots, hyphens and underscores", l.Name)
	case strings.TrimSpace(l.Prompt) == "" || len(l.Prompt) > maxPrompt:
		return fmt.Sprintf("prompt: say in 1 to %d bytes what the credential is for", maxPrompt)
	case err != nil || l.URL != "" && (at.Host == "" || at.Scheme != "https" && at.Scheme != "http") || len(l.URL) > maxURL:
		return fmt.Sprintf("url: want an address of at most %d bytes that begins with https:// or http://, or none", maxURL)
	default:
		return ""
	}
}
