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

// ServerCredentials returns the credentials for a port inside the mesh. They require TLS 1.3 and a client
// certificate of a process in the mesh. The server itself decides who may call which method. Rejected connections
// are logged. A nil Source yields plain text.
func (s *Source) ServerCredentials() credentials.TransportCredentials {
	if s == nil {
		return insecure.NewCredentials()
	}
	return &mutualTLS{TransportCredentials: credentials.NewTLS(s.tlsConfig(nil)), source: s, handshakeErr: &atomic.Pointer[error]{}}
}

// ClientCredentials returns the credentials for a connection to one process. They require TLS 1.3 and a peer of
// the same mesh with the given role and agent. agent is empty for roles other than worker. A nil Source yields
// plain text.
func (s *Source) ClientCredentials(role Role, agent string) *Credentials {
	c := &Credentials{mutualTLS{TransportCredentials: insecure.NewCredentials(), source: s, handshakeErr: &atomic.Pointer[error]{}}}
	if s != nil {
		want := ID{s.id.TrustDomain, role, agent}
		c.TransportCredentials = credentials.NewTLS(s.tlsConfig(func(id ID) error {
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

// HandshakeError returns why the last handshake failed to verify the peer. It returns nil if the handshake
// succeeded or the connection was lost. A rejection by the peer arrives later and is not reported here.
func (c *Credentials) HandshakeError() error {
	if err := c.handshakeErr.Load(); err != nil {
		return *err
	}
	return nil
}

// tlsConfig returns the TLS settings of a server or a client. The certificates are looked up for each handshake.
func (s *Source) tlsConfig(admit func(ID) error) *tls.Config {
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

// mutualTLS wraps TLS credentials. It adds the id of the peer to the connection and logs failed handshakes.
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
	var failed *error
	if err != nil && !isConnectionLoss(err) {
		failed = &err
	}
	if before := m.handshakeErr.Swap(failed); failed != nil && (before == nil || (*before).Error() != err.Error()) {
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
		if caller, err = peerIDFromHandshake(info); err == nil {
			return conn, peerAuth{info.(credentials.TLSInfo), caller}, nil
		}
		_ = conn.Close()
	}
	if !errors.Is(err, io.EOF) { // a port scan or a TCP probe
		m.source.log.Warn("connection rejected", zap.Stringer("from", raw.RemoteAddr()), zap.Error(err))
	}
	return nil, nil, err
}

// peerIDFromHandshake returns the peer id that a handshake has verified.
func peerIDFromHandshake(info credentials.AuthInfo) (ID, error) {
	tlsInfo, ok := info.(credentials.TLSInfo)
	if !ok || len(tlsInfo.State.PeerCertificates) == 0 || len(tlsInfo.State.PeerCertificates[0].URIs) != 1 {
		return ID{}, errors.New("the handshake proved no identity; the certificate must have exactly one URI")
	}
	return Parse(tlsInfo.State.PeerCertificates[0].URIs[0].String())
}

// peerAuth holds the verified id of a server connection's peer.
type peerAuth struct {
	credentials.TLSInfo
	caller ID
}

// CallerFromContext returns the id of the caller, proven by its certificate. It returns false if the connection
// has no mesh certificate, as with plain text or the client port of the orchestrator.
func CallerFromContext(ctx context.Context) (ID, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ID{}, false
	}
	known, ok := p.AuthInfo.(peerAuth)
	return known.caller, ok
}
