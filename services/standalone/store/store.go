// Package store embeds the two stores of a standalone mesh: an etcd inside the process, and a Redis as a child
// process. Both are real and durable: acknowledged writes are on disk. If Redis is not installed, an imitation in
// RAM replaces it.
package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// lockFolder creates the folder, readable only by its owner, and locks it until release is called. Two servers
// that use the same data would destroy them.
func lockFolder(dir string) (release func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "troupe.lock"), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the operator names the folder
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("data folder %s is in use by another process: end it, or give this one another folder", dir)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock.Close, nil
}

// Ports are chosen below the range that Linux uses for outgoing connections. So no connection takes the port of a
// server that is restarting.
const lowestPort, highestPort = 20000, 32000

// freeAddress returns a loopback address that is free at the moment. It is not reserved, so another process may
// take it before the server listens.
func freeAddress() (string, error) {
	var err error
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort) //nolint:gosec // a port is not a secret
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		var l net.Listener
		if l, err = net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", fmt.Errorf("no free port on 127.0.0.1: %w", err)
}
