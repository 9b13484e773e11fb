package client

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// WithCredentials returns a connection whose calls carry the credentials, such as a bearer.Token. If as is nil, it returns conn.
func WithCredentials(conn grpc.ClientConnInterface, creds credentials.PerRPCCredentials) grpc.ClientConnInterface {
	if creds == nil {
		return conn
	}
	return signed{conn, creds}
}

type signed struct {
	grpc.ClientConnInterface
	as credentials.PerRPCCredentials
}

// Invoke implements grpc.ClientConnInterface.
func (s signed) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return s.ClientConnInterface.Invoke(ctx, method, args, reply, append(opts, grpc.PerRPCCredentials(s.as))...)
}

// NewStream implements grpc.ClientConnInterface.
func (s signed) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return s.ClientConnInterface.NewStream(ctx, desc, method, append(opts, grpc.PerRPCCredentials(s.as))...)
}
