// Package loopback hands out the addresses of servers that a test stops and starts again.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
)

// These ports are outside the system's ephemeral range and below the ports of etcdtest, so that no other
// process uses them while a server is down.
const (
	firstPort = 10_000
	ports     = 10_000
)

var (
	begin          = rand.Uint32N(ports) // differs between processes, because other packages are tested at the same time
	addressesGiven atomic.Uint32
)

// Address returns a loopback address, host:port, without a listener. No other call in this process returns the
// same address, so parallel tests never conflict.
func Address(t testing.TB) string {
	t.Helper()
	for range ports {
		lis, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+(begin+addressesGiven.Add(1))%ports))
		if err != nil {
			continue // the port is in use
		}
		defer lis.Close()
		return lis.Addr().String()
	}
	t.Fatal("loopback: no free port")
	return ""
}
