package client

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// WithCredentials returns a connection that sends creds, such as a bearer.Token, with each call. It returns conn
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
func (s credentialConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return s.ClientConnInterface.Invoke(ctx, method, args, reply, append(opts, grpc.PerRPCCredentials(s.creds))...)
}

// NewStream implements grpc.ClientConnInterface.
func (s credentialConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return s.ClientConnInterface.NewStream(ctx, desc, method, append(opts, grpc.PerRPCCredentials(s.creds))...)
}
