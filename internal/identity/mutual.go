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

// Server is what a port inside the mesh asks of whoever connects: TLS 1.3, and the certificate
// of a process of the mesh. Who may call what is for the server to say. Connections that are
// refused go to the log. Without an identity it is plain text.
func (s *Source) Server() credentials.TransportCredentials {
	if s == nil {
		return insecure.NewCredentials()
	}
	return &mutual{TransportCredentials: credentials.NewTLS(s.config(nil)), source: s, refusal: &atomic.Pointer[error]{}}
}

// Client is what a connection asks of the process at its other end: TLS 1.3, and to be the
// wanted one of the same mesh. agent is that of a worker, and else empty. Without an identity
// it is plain text.
func (s *Source) Client(role Role, agent string) *Credentials {
	c := &Credentials{mutual{TransportCredentials: insecure.NewCredentials(), source: s, refusal: &atomic.Pointer[error]{}}}
	if s != nil {
		want := ID{s.id.TrustDomain, role, agent}
		c.TransportCredentials = credentials.NewTLS(s.config(func(id ID) error {
			if id != want {
				return fmt.Errorf("it is %s there, and not %s", id, want)
			}
			return nil
		}))
	}
	return c
}

// Credentials are those of a connection to one process.
type Credentials struct{ mutual }

// Refusal is why the last handshake did not prove the other side; nil when it did, or when the
// connection was lost. That the other side refused this one is seen later, and not here.
func (c *Credentials) Refusal() error {
	if err := c.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// config is the TLS of either side. Keys are looked up for each handshake.
func (s *Source) config(admit func(ID) error) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert, // which is verified below, as that of a server is
		SessionTicketsDisabled: true,                     // a resumed session would prove nothing anew
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &s.current().pair, nil },
		GetClientCertificate:   func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &s.current().pair, nil },
		InsecureSkipVerify:     true, //nolint:gosec // host names are not asked for; VerifyPeerCertificate verifies the rest
		VerifyPeerCertificate: func(chain [][]byte, _ [][]*x509.Certificate) error {
			id, err := s.current().verify(chain)
			if err == nil && admit != nil {
				err = admit(id)
			}
			return err
		},
	}
}

// mutual adds to TLS who was proven, and what is told of a handshake that failed.
type mutual struct {
	credentials.TransportCredentials
	source  *Source
	refusal *atomic.Pointer[error]
}

// Clone implements credentials.TransportCredentials.
func (m *mutual) Clone() credentials.TransportCredentials {
	return &mutual{m.TransportCredentials.Clone(), m.source, m.refusal}
}

// ClientHandshake implements credentials.TransportCredentials.
func (m *mutual) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := m.TransportCredentials.ClientHandshake(ctx, authority, raw)
	var refused *error
	if err != nil && !lost(err) {
		refused = &err
	}
	if before := m.refusal.Swap(refused); refused != nil && (before == nil || (*before).Error() != err.Error()) {
		m.source.log.Warn("the process at the other end is refused", zap.Stringer("at", raw.RemoteAddr()), zap.Error(err))
	}
	return conn, info, err
}

// lost reports whether a handshake failed because the connection did.
func lost(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, context.Canceled)
}

// ServerHandshake implements credentials.TransportCredentials.
func (m *mutual) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := m.TransportCredentials.ServerHandshake(raw)
	if err == nil {
		var caller ID
		if caller, err = proven(info); err == nil {
			return conn, proof{info.(credentials.TLSInfo), caller}, nil
		}
		_ = conn.Close()
	}
	if !errors.Is(err, io.EOF) { // somebody who only looks whether the port is open
		m.source.log.Warn("connection refused", zap.Stringer("from", raw.RemoteAddr()), zap.Error(err))
	}
	return nil, nil, err
}

// proven is who a handshake has verified.
func proven(info credentials.AuthInfo) (ID, error) {
	tlsInfo, ok := info.(credentials.TLSInfo)
	if !ok || len(tlsInfo.State.PeerCertificates) == 0 || len(tlsInfo.State.PeerCertificates[0].URIs) != 1 {
		return ID{}, errors.New("the handshake proved nobody")
	}
	return Parse(tlsInfo.State.PeerCertificates[0].URIs[0].String())
}

// proof is what a server knows of a connection.
type proof struct {
	credentials.TLSInfo
	caller ID
}

// Caller is who sent the call of the context, as its certificate proves. It is false on a
// connection without one: in plain text, or of a client of the orchestrator.
func Caller(ctx context.Context) (ID, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ID{}, false
	}
	known, ok := p.AuthInfo.(proof)
	return known.caller, ok
}
