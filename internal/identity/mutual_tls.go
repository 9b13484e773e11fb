package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// Server returns the credentials of a port inside the mesh: TLS 1.3 with a client certificate of a process of
// the mesh. The server itself decides who may call what. Rejected connections are logged. A nil Source gives
// plain text.
func (s *Source) Server() credentials.TransportCredentials {
	if s == nil {
		return insecure.NewCredentials()
	}
	return &mutualTLS{TransportCredentials: credentials.NewTLS(s.config(nil)), source: s, handshakeErr: &atomic.Pointer[error]{}}
}

// Client returns the credentials of a connection to one process: TLS 1.3, and the peer must be the given role
// and agent of the same mesh. agent is empty for roles other than worker. A nil Source gives plain text.
func (s *Source) Client(role Role, agent string) *Credentials {
	c := &Credentials{mutualTLS{TransportCredentials: insecure.NewCredentials(), source: s, handshakeErr: &atomic.Pointer[error]{}}}
	if s != nil {
		want := ID{s.id.TrustDomain, role, agent}
		c.TransportCredentials = credentials.NewTLS(s.config(func(id ID) error {
			if id != want {
				return fmt.Errorf("the peer is %s, not %s", id, want)
			}
			return nil
		}))
	}
	return c
}

// Credentials are the transport credentials of a connection to one process.
type Credentials struct{ mutualTLS }

// HandshakeError returns why the last handshake failed to verify the peer. It is nil if the handshake succeeded
// or if the connection was lost. A rejection by the peer arrives later and is not reported here.
func (c *Credentials) HandshakeError() error {
	if err := c.handshakeErr.Load(); err != nil {
		return *err
	}
	return nil
}

// config returns the TLS settings of either side. Certificates are looked up for each handshake.
func (s *Source) config(admit func(ID) error) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert, // verified below, as server certificates are
		SessionTicketsDisabled: true,                     // a resumed session skips verification
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &s.current().pair, nil },
		GetClientCertificate:   func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &s.current().pair, nil },
		InsecureSkipVerify:     true, //nolint:gosec // the mesh verifies ids, not host names; see VerifyPeerCertificate
		VerifyPeerCertificate: func(chain [][]byte, _ [][]*x509.Certificate) error {
			id, err := s.current().verify(chain)
			if err == nil && admit != nil {
				err = admit(id)
			}
			return err
		},
	}
}

// mutualTLS adds the id of the peer to TLS credentials, and logs failed handshakes.
type mutualTLS struct {
	credentials.TransportCredentials
	source       *Source
	handshakeErr *atomic.Pointer[error]
}

// Clone implements credentials.TransportCredentials.
func (m *mutualTLS) Clone() credentials.TransportCredentials {
	return &mutualTLS{m.TransportCredentials.Clone(), m.source, m.handshakeErr}
}

// ClientHandshake implements credentials.TransportCredentials.
func (m *mutualTLS) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := m.TransportCredentials.ClientHandshake(ctx, authority, raw)
	var refused *error
	if err != nil && !isConnectionLoss(err) {
		refused = &err
	}
	if before := m.handshakeErr.Swap(refused); refused != nil && (before == nil || (*before).Error() != err.Error()) {
		m.source.log.Warn("the peer failed verification; the connection is closed", zap.Stringer("at", raw.RemoteAddr()), zap.Error(err))
	}
	return conn, info, err
}

// isConnectionLoss reports whether a handshake failed because the connection was lost.
func isConnectionLoss(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, context.Canceled)
}

// ServerHandshake implements credentials.TransportCredentials.
func (m *mutualTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := m.TransportCredentials.ServerHandshake(raw)
	if err == nil {
		var caller ID
		if caller, err = peerID(info); err == nil {
			return conn, peerAuth{info.(credentials.TLSInfo), caller}, nil
		}
		_ = conn.Close()
	}
	if !errors.Is(err, io.EOF) { // a port scan or a TCP probe
		m.source.log.Warn("connection rejected", zap.Stringer("from", raw.RemoteAddr()), zap.Error(err))
	}
	return nil, nil, err
}

// peerID returns the id that a handshake has verified.
func peerID(info credentials.AuthInfo) (ID, error) {
	tlsInfo, ok := info.(credentials.TLSInfo)
	if !ok || len(tlsInfo.State.PeerCertificates) == 0 || len(tlsInfo.State.PeerCertificates[0].URIs) != 1 {
		return ID{}, errors.New("the handshake proved no identity; the certificate must have exactly one URI")
	}
	return Parse(tlsInfo.State.PeerCertificates[0].URIs[0].String())
}

// peerAuth is the verified id of the peer of a server's connection.
type peerAuth struct {
	credentials.TLSInfo
	caller ID
}

// Caller returns the id of the caller of the context, proven by its certificate. It returns false on a
// connection without a mesh certificate: plain text, or the client port of the orchestrator.
func Caller(ctx context.Context) (ID, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ID{}, false
	}
	known, ok := p.AuthInfo.(peerAuth)
	return known.caller, ok
}
