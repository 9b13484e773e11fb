package mcptool

import (
	"cmp"
	"net/netip"
	"net/url"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// Defaults of a Config.
const (
	DefaultStartTimeout = time.Minute // a package runner may have to fetch the server first
	DefaultCallTimeout  = time.Minute
)

// Config describes an MCP server and selects the tools that the agent uses. Either Command or URL is required.
type Config struct {
	// Command is the program and its arguments. It speaks MCP on stdin and stdout. It runs in a process group of
	// its own, which ends with it. Its stderr goes to Log.
	Command []string
	// Env adds to the environment of the program: NAME, which must be set, or NAME=value. PATH, HOME, USER,
	// TMPDIR, TZ and the language are always passed on, and nothing else is.
	Env []string
	Dir string // working directory (empty means the one of this process)

	// URL is the address of a server over streamable HTTP. It is called through internal/egress: no other host, no
	// proxy, and no inner addresses unless the URL itself names one.
	URL string
	// Token is sent to the URL as Authorization: Bearer (empty sends none).
	Token secret.Value
	// AllowInnerAddresses opens networks for a URL whose host is a name, such as the service network of a cluster.
	AllowInnerAddresses []netip.Prefix

	Prefix string   // prefix of the tool names that the model sees, such as fs_
	Tools  []string // tools to use, by their names at the server; at least one

	StartTimeout time.Duration // bounds the start of the server (0 means DefaultStartTimeout)
	CallTimeout  time.Duration // bounds one call (0 means DefaultCallTimeout)

	Log *zap.Logger // (nil logs nothing)
}

func newConfigError(format string, args ...any) error {
	return failure.Newf(failure.UserInvalidInput, "mcptool.New", format, args...)
}

var prefixPattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{0,32}$`)

// setDefaultsAndValidate sets the defaults and returns an error for invalid settings.
func (c *Config) setDefaultsAndValidate() error {
	c.StartTimeout = cmp.Or(c.StartTimeout, DefaultStartTimeout)
	c.CallTimeout = cmp.Or(c.CallTimeout, DefaultCallTimeout)
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	switch {
	case len(c.Command) == 0 && c.URL == "":
		return newConfigError("command is missing: give the program and its arguments, or the url of a server")
	case len(c.Command) > 0 && c.URL != "":
		return newConfigError("url: there is a command as well; leave one out")
	case len(c.Command) > 0 && c.Command[0] == "":
		return newConfigError("command[0] is empty; name the program")
	case c.URL != "" && (len(c.Env) > 0 || c.Dir != ""):
		return newConfigError("env and dir are for a command; leave them out with a url")
	case c.URL == "" && (c.Token.Reveal() != "" || len(c.AllowInnerAddresses) > 0):
		return newConfigError("a token and allowInnerAddresses are for a url; leave them out with a command")
	case !prefixPattern.MatchString(c.Prefix):
		return newConfigError("prefix is %q; use at most 32 letters, digits, underscores and hyphens", c.Prefix)
	case c.StartTimeout < 0 || c.CallTimeout < 0:
		return newConfigError("startTimeout and callTimeout: use positive durations, or leave them out")
	}
	if c.URL != "" {
		u, err := url.Parse(c.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
			return newConfigError("url is %q; write it as https://host/path, without a user", redactURL(c.URL))
		}
	}
	_, err := c.environment()
	return err
}

// redactURL returns a URL without its secrets, for messages and logs.
func redactURL(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Redacted()
	}
	return secret.Redacted
}

// passedVariables lists the environment variables that every program gets because it needs them to run. None of
// them is secret.
var passedVariables = []string{"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE"}

// environment returns the environment of the program, or an error for an unset variable.
func (c *Config) environment() ([]string, error) {
	var all []string
	for _, name := range passedVariables {
		if value, ok := os.LookupEnv(name); ok {
			all = append(all, name+"="+value)
		}
	}
	for i, entry := range c.Env {
		name, _, given := strings.Cut(entry, "=")
		value, set := os.LookupEnv(name)
		switch {
		case name == "":
			return nil, newConfigError("env[%d] has no name; use NAME, or NAME=value", i)
		case given:
			all = append(all, entry)
		case set:
			all = append(all, name+"="+value)
		default:
			return nil, newConfigError("env[%d]: %s is not set in the environment; set it, or leave it out", i, name)
		}
	}
	return all, nil
}

// displayName names the server in messages and logs. It is the host of the URL, or the program with its first
// argument that is not a flag. For a package runner, that argument is the package.
func (c *Config) displayName() string {
	if c.URL != "" {
		if u, err := url.Parse(c.URL); err == nil {
			return u.Host
		}
		return "at a URL"
	}
	name := path.Base(c.Command[0])
	for _, arg := range c.Command[1:] {
		if !strings.HasPrefix(arg, "-") {
			return name + " " + arg
		}
	}
	return name
}

// port returns the port of the URL (the default of its scheme if it has none).
func port(u *url.URL) int {
	if n, err := strconv.Atoi(u.Port()); err == nil {
		return n
	}
	if u.Scheme == "http" {
		return 80
	}
	return 443
}
