package rpc

import (
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/troupe-dev/troupe/internal/telemetry"
)

// Network is the network of a process. The zero value is TCP. Tests replace it with a network that they control.
type Network struct {
	// OpenPort opens a port (nil means a TCP port).
	OpenPort func(addr string) (net.Listener, error)
	// DialOptions are added to those of every connection.
	DialOptions []grpc.DialOption
}

// Dial is like the function Dial, over this network.
func (n Network) Dial(target string, t *telemetry.Telemetry, repeatable ...string) (*grpc.ClientConn, error) {
	return n.DialWith(insecure.NewCredentials(), target, t, repeatable...)
}

// Listen opens a TCP port. Its error names the flag and says what to do if the port is in use. If a permit
// function rejects the address, Listen closes the port and returns that error.
func Listen(flag, addr string, permit ...func(flag string, at net.Addr) error) (net.Listener, error) {
	return Network{}.Listen(flag, addr, permit...)
}

// Listen is like the function Listen, in this network.
func (n Network) Listen(flag, addr string, permit ...func(flag string, at net.Addr) error) (net.Listener, error) {
	open := n.OpenPort
	if open == nil {
		open = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	lis, err := open(addr)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %s: %w; choose another address, or 127.0.0.1:0 for any free port", flag, addr, err)
	}
	for _, permitted := range permit {
		if err := permitted(flag, lis.Addr()); err != nil {
			return nil, errors.Join(err, lis.Close())
		}
	}
	return lis, nil
}
