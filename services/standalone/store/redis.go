package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zapio"

	acl "github.com/troupe-dev/troupe/deploy/redis"
)

// maxSocketPathBytes is the longest path of a unix socket that all systems support, in bytes.
const maxSocketPathBytes = 103

// stopTime is how long the child may take to stop before it is killed. A kill loses no acknowledged writes,
// because they are on disk.
const stopTime = 5 * time.Second

// RedisConfig configures the embedded Redis.
type RedisConfig struct {
	DataDir string // created with mode 0700 if it does not exist; used only by this Redis
	Log     *zap.Logger
}

// Redis runs a redis-server or valkey-server as a child process. Every write is on disk before it is acknowledged.
// The server listens on a unix socket in its folder, which only the owner of the folder can enter. It has the
// users of deploy/redis, with new passwords in each process.
//
// If neither program is on PATH, an imitation runs inside this process on a loopback port. It requires the same
// passwords but lets each user access all keys. Its data are lost when Run ends.
type Redis struct {
	cfg        RedisConfig
	serverPath string            // path of the server (empty for the imitation)
	socket     string            // path of the server's socket
	address    string            // address of the imitation
	passwords  map[string]string // by user
}

// Admin is the Redis user with all permissions. Its password is in the data folder.
const Admin = "admin"

// NewRedis finds the server program, and logs a warning if there is none. It starts nothing and writes nothing
// before Run.
func NewRedis(cfg RedisConfig) (*Redis, error) {
	r := &Redis{cfg: cfg, passwords: map[string]string{"memory": rand.Text(), "orchestrator": rand.Text(), Admin: rand.Text()}}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			r.serverPath = path
			break
		}
	}
	var err error
	if r.serverPath == "" {
		r.address, err = freeAddress()
		cfg.Log.Warn("no redis-server or valkey-server on PATH: state ends with this process, and its users may use each other's keys; install one of the two")
		return r, err
	}
	if r.cfg.DataDir, err = filepath.Abs(cfg.DataDir); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	r.socket = filepath.Join(r.cfg.DataDir, "redis.sock")
	if len(r.socket) > maxSocketPathBytes {
		return nil, fmt.Errorf("data folder: %s makes a socket path of %d bytes, and %d is the most: choose one with a shorter path",
			cfg.DataDir, len(r.socket), maxSocketPathBytes)
	}
	return r, nil
}

// URL returns the URL for a user: unix://user:password@/path, or redis://user:password@host:port for the
// imitation. It never changes.
func (r *Redis) URL(user string) string {
	known := url.UserPassword(user, r.passwords[user])
	if r.serverPath == "" {
		return (&url.URL{Scheme: "redis", User: known, Host: r.address, Path: "/0"}).String()
	}
	return (&url.URL{Scheme: "unix", User: known, Path: r.socket}).String()
}

// IsDurable reports whether data outlive Run. The data of the imitation do not.
func (r *Redis) IsDurable() bool { return r.serverPath != "" }

// Run runs the server until ctx ends, and calls ready once the server answers. It may be called again after it has
// returned. It fails if the server ends by itself or the folder is in use.
func (r *Redis) Run(ctx context.Context, ready func()) (err error) {
	if r.serverPath == "" {
		return r.runInMemory(ctx, ready)
	}
	release, err := lockFolder(r.cfg.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := r.writeUsers(); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return r.runChild(ctx, ready)
}

func (r *Redis) usersPath() string { return filepath.Join(r.cfg.DataDir, "users.acl") }

// writeUsers writes the users and their passwords to a file that only its owner can read.
func (r *Redis) writeUsers() error {
	shipped := maps.Clone(r.passwords)
	delete(shipped, Admin)
	users, err := acl.UsersACL(shipped)
	if err != nil {
		return err
	}
	if err := os.Remove(r.usersPath()); err != nil && !errors.Is(err, fs.ErrNotExist) { // the old file may have other permissions
		return err
	}
	return os.WriteFile(r.usersPath(), []byte(users+"user "+Admin+" reset on ~* &* +@all >"+r.passwords[Admin]+"\n"), 0o600)
}

func (r *Redis) runChild(ctx context.Context, ready func()) error {
	// The kernel ends the child when the thread that started it ends. So this goroutine stays locked to its
	// thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	output := &zapio.Writer{Log: r.cfg.Log.Named("redis"), Level: zapcore.ErrorLevel}
	defer func() { _ = output.Close() }() // nothing more is written to it
	alive, cancel := context.WithCancel(ctx)
	child := exec.CommandContext(alive, r.serverPath, r.serverArgs()...) //nolint:gosec // running a program from PATH is intended
	child.Stderr = output
	child.SysProcAttr = childSysProcAttr()
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = stopTime

	err := child.Start()
	var waiting sync.WaitGroup
	if err == nil {
		waiting.Go(func() {
			if r.awaitPing(alive) {
				ready()
			}
		})
		err = child.Wait()
	}
	cancel()
	waiting.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s ended by itself, see %s: %w", filepath.Base(r.serverPath), r.logPath(), cmp.Or(err, errors.New("exit status 0")))
}

func (r *Redis) logPath() string { return filepath.Join(r.cfg.DataDir, "redis.log") }

func (r *Redis) serverArgs() []string {
	return []string{
		"--dir", r.cfg.DataDir, "--logfile", r.logPath(), "--daemonize", "no",
		"--port", "0", "--unixsocket", r.socket, "--unixsocketperm", "700",
		"--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no",
		"--save", "", "--maxmemory-policy", "noeviction", "--aclfile", r.usersPath(),
	}
}

// awaitPing waits until the server answers a PING. It returns false if ctx ends first.
func (r *Redis) awaitPing(ctx context.Context) bool {
	client := redis.NewClient(&redis.Options{
		Network: "unix", Addr: r.socket, MaxRetries: -1, DisableIdentity: true, Username: Admin, Password: r.passwords[Admin],
	})
	defer func() { _ = client.Close() }() // nothing can be lost by the error
	tries := time.NewTicker(10 * time.Millisecond)
	defer tries.Stop()
	for client.Ping(ctx).Err() != nil {
		select {
		case <-tries.C:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

func (r *Redis) runInMemory(ctx context.Context, ready func()) error {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true) // otherwise keys would never expire
	for user, password := range r.passwords {
		server.RequireUserAuth(user, password) // the imitation has no rules for keys
	}
	if err := server.StartAddr(r.address); err != nil {
		return fmt.Errorf("redis in memory: %w", err)
	}
	defer server.Close()
	ready()
	<-ctx.Done()
	return nil
}
