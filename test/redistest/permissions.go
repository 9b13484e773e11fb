package redistest

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// MayRun reports whether Redis allows the user in the URL to run a command. It ignores other errors of the
// command.
func MayRun(t testing.TB, url string, command ...any) bool {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	options.MaxRetries, options.DisableIdentity = -1, true
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	err = client.Do(t.Context(), command...).Err()
	if err == nil || err == redis.Nil { //nolint:errorlint // go-redis returns it unwrapped
		return true
	}
	for _, rejection := range []string{
		"NOPERM", "NOAUTH", "WRONGPASS", "can't run this command", "can't access at least one of the keys",
		"command not allowed", "not allowed from script",
	} {
		if strings.Contains(err.Error(), rejection) {
			return false
		}
	}
	for _, answer := range []string{"ERR ", "WRONGTYPE", "NOSCRIPT"} {
		if strings.HasPrefix(err.Error(), answer) {
			return true
		}
	}
	t.Fatalf("redistest: %v: %v", command, err)
	return false
}
