package redistest

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	acl "github.com/troupe-dev/troupe/deploy/redis"
)

// Admin is the user of a guarded server that has all rights.
const Admin = "admin"

// Guarded runs a redis-server with the shipped users, as in production, and Admin. The password of each user is
// its name.
func Guarded(t testing.TB, flags ...string) *Server {
	t.Helper()
	users, err := acl.Users(map[string]string{"memory": "memory", "orchestrator": "orchestrator"})
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	file := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(file, []byte("user "+Admin+" reset on >"+Admin+" ~* &* +@all\n"+users), 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return New(t, append([]string{"--aclfile", file}, flags...)...)
}

// Unguarded runs a redis-server with the same users and default, all with all rights. Tests compare Guarded
// with it.
func Unguarded(t testing.TB) *Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users.acl")
	const may = " reset on nopass ~* &* +@all\n"
	all := "user default" + may + "user " + Admin + may + "user memory" + may + "user orchestrator" + may
	if err := os.WriteFile(file, []byte(all), 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return New(t, "--aclfile", file)
}

// URL returns the URL of a server for a user, with the password that Guarded sets.
func URL(user, addr string) string {
	return (&url.URL{Scheme: "redis", User: url.UserPassword(user, user), Host: addr, Path: "/0"}).String()
}
