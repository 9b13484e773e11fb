package redistest

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	acl "github.com/troupe-dev/troupe/deploy/redis"
)

// Admin is the name of the user with all rights on a guarded server.
const Admin = "admin"

// StartGuarded runs a redis-server with the Redis users of production, and with Admin. The password of each user
// is its name.
func StartGuarded(t testing.TB, flags ...string) *Server {
	t.Helper()
	users, err := acl.UsersACL(map[string]string{"memory": "memory", "orchestrator": "orchestrator"})
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	file := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(file, []byte("user "+Admin+" reset on >"+Admin+" ~* &* +@all\n"+users), 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return StartServer(t, append([]string{"--aclfile", file}, flags...)...)
}

// StartUnguarded runs a redis-server with the same users and the user default, all with all rights. Tests compare
// it with a guarded server.
func StartUnguarded(t testing.TB) *Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users.acl")
	const may = " reset on nopass ~* &* +@all\n"
	all := "user default" + may + "user " + Admin + may + "user memory" + may + "user orchestrator" + may
	if err := os.WriteFile(file, []byte(all), 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return StartServer(t, "--aclfile", file)
}

// UserURL returns the URL with which a user connects to a server. It contains the password that StartGuarded sets.
func UserURL(user, addr string) string {
	return (&url.URL{Scheme: "redis", User: url.UserPassword(user, user), Host: addr, Path: "/0"}).String()
}
