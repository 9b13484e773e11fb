package client

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// WithCredentials returns a connection that sends creds, such as those of a bearer.TokenConfig, with each call. It returns conn
// itself if creds is nil.
func WithCredentials(conn grpc.ClientConnInterface, creds credentials.PerRPCCredentials) grpc.ClientConnInterface {
	if creds == nil {
		return conn
	}
	return credentialConn{conn, creds}
}

type credentialConn struct {
	grpc.ClientConnInterface
	creds credentials.PerRPCCredentials
}

// Invoke implements grpc.ClientConnInterface.
func (c credentialConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, append(opts, grpc.PerRPCCredentials(c.creds))...)
}

// NewStream implements grpc.ClientConnInterface.
func (c credentialConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.ClientConnInterface.NewStream(ctx, desc, method, append(opts, grpc.PerRPCCredentials(c.creds))...)
}
