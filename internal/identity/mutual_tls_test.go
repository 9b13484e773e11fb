package identity

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

func failIfServed(t *testing.T) func(ID, bool) {
	return func(who ID, _ bool) { t.Errorf("%s was served", who) }
}

func TestMutualTLS_BothSidesKnowEachOther(t *testing.T) {
	ca := newCA(t)
	var caller ID
	address := serveWith(t, openSource(t, ca, Memory, "", zap.NewNop()).ServerCredentials(), func(who ID, ok bool) { caller = who; require.True(t, ok) })
	client := openSource(t, ca, Worker, "research", zap.NewNop()).ClientCredentials(Memory, "")
	require.NoError(t, callOnce(t, client, address))
	require.Equal(t, ID{domain, Worker, "research"}, caller)
	require.NoError(t, client.HandshakeError())
}

func TestMutualTLS_WithoutIdentityIsPlainText(t *testing.T) {
	var none *Source
	known := true
	address := serveWith(t, none.ServerCredentials(), func(_ ID, ok bool) { known = ok })
	require.NoError(t, callOnce(t, none.ClientCredentials(Memory, ""), address))
	require.False(t, known)
}

// A server rejects every caller without a valid certificate of the mesh, and logs the reason (guarantee S1).
func TestMutualTLS_ServerRejectsUnprovenCallers(t *testing.T) {
	const id = "spiffe://example.org/orchestrator"
	ca, foreign := newCA(t), newCA(t)
	expired, early := certTemplate(t, id), certTemplate(t, id)
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	early.NotBefore = time.Now().Add(time.Hour)
	signer := certTemplate(t, id)
	signer.KeyUsage |= x509.KeyUsageCertSign
	named := certTemplate(t)
	named.DNSNames = []string{id}
	for name, c := range map[string]struct {
		shown *tls.Certificate
		max   uint16 // version of TLS
		says  string
	}{
		"no certificate": {nil, 0, "didn't provide a certificate"},
		"expired":        {certificatePair(t, ca, expired), 0, "expired"},
		"not valid yet":  {certificatePair(t, ca, early), 0, "not yet valid"},
		"another CA":     {certificatePair(t, foreign, certTemplate(t, id)), 0, "unknown authority"},
		"another trust domain": {
			certificatePair(t, ca, certTemplate(t, "spiffe://example.com/orchestrator")), 0,
			"spiffe://example.com/orchestrator belongs to another trust domain than example.org",
		},
		"two URIs":           {certificatePair(t, ca, certTemplate(t, id, "spiffe://example.org/memory")), 0, "more than one URI SAN"},
		"twice the same URI": {certificatePair(t, ca, certTemplate(t, id, id)), 0, "more than one URI SAN"},
		"no URI":             {certificatePair(t, ca, certTemplate(t)), 0, "no URI SAN"},
		"URI as a DNS name":  {certificatePair(t, ca, named), 0, "no URI SAN"},
		"no SPIFFE id":       {certificatePair(t, ca, certTemplate(t, "https://example.org/orchestrator")), 0, "scheme"},
		"unknown path":       {certificatePair(t, ca, certTemplate(t, "spiffe://example.org/sa/orchestrator")), 0, "is not a process of a mesh"},
		"longer path":        {certificatePair(t, ca, certTemplate(t, id+"/x")), 0, "is not a process of a mesh"},
		"CA certificate":     {certificatePair(t, ca, signer), 0, "KeyCertSign"},
		"TLS 1.2":            {certificatePair(t, ca, certTemplate(t, id)), tls.VersionTLS12, "unsupported versions"},
	} {
		t.Run(name, func(t *testing.T) {
			log, next := newWarningLog(t)
			address := serveWith(t, openSource(t, ca, Memory, "", log).ServerCredentials(), failIfServed(t))
			shows := &tls.Config{InsecureSkipVerify: true, MaxVersion: c.max}
			if c.shown != nil {
				shows.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.shown, nil }
			}
			require.Error(t, callOnce(t, credentials.NewTLS(shows), address))
			said := next()
			require.Equal(t, "connection rejected", said["message"])
			require.Contains(t, said["error"], c.says)
			require.Contains(t, said["from"], "127.0.0.1:")
		})
	}
	t.Run("plain text", func(t *testing.T) {
		log, next := newWarningLog(t)
		address := serveWith(t, openSource(t, ca, Memory, "", log).ServerCredentials(), failIfServed(t))
		require.Error(t, callOnce(t, insecure.NewCredentials(), address))
		require.Contains(t, next()["error"], "does not look like a TLS handshake")
	})
}

func certificatePair(t *testing.T, ca *CA, cert *x509.Certificate) *tls.Certificate {
	t.Helper()
	made := ca.certify(t, cert)
	return &made
}

// A client rejects every peer except the process for which the connection was opened (guarantees S1, S16).
func TestMutualTLS_ClientRejectsOtherPeers(t *testing.T) {
	ca, foreign := newCA(t), newCA(t)
	const id = "spiffe://example.org/worker/a"
	expired := certTemplate(t, id)
	expired.NotAfter = time.Now().Add(-time.Second)
	for name, c := range map[string]struct {
		shown *tls.Certificate
		max   uint16
		says  string
	}{
		"another agent": {
			certificatePair(t, ca, certTemplate(t, "spiffe://example.org/worker/b")), 0,
			"the peer is spiffe://example.org/worker/b, not spiffe://example.org/worker/a",
		},
		"another role":         {certificatePair(t, ca, certTemplate(t, "spiffe://example.org/memory")), 0, "the peer is spiffe://example.org/memory"},
		"another trust domain": {certificatePair(t, ca, certTemplate(t, "spiffe://example.com/worker/a")), 0, "belongs to another trust domain"},
		"another CA":           {certificatePair(t, foreign, certTemplate(t, id)), 0, "unknown authority"},
		"expired":              {certificatePair(t, ca, expired), 0, "expired"},
		"two URIs":             {certificatePair(t, ca, certTemplate(t, id, "spiffe://example.org/worker/b")), 0, "more than one URI SAN"},
		"no URI":               {certificatePair(t, ca, certTemplate(t)), 0, "no URI SAN"},
		"TLS 1.2":              {certificatePair(t, ca, certTemplate(t, id)), tls.VersionTLS12, "protocol version not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			log, next := newWarningLog(t)
			address := serveWith(t, credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{*c.shown}, MaxVersion: c.max}), failIfServed(t))
			client := openSource(t, ca, Orchestrator, "", log).ClientCredentials(Worker, "a")
			require.ErrorContains(t, callOnce(t, client, address), c.says)
			if c.max != 0 {
				return // no certificate was received
			}
			require.ErrorContains(t, client.HandshakeError(), c.says)
			said := next()
			require.Equal(t, "the peer failed verification; the connection is closed", said["message"])
			require.Equal(t, address, said["at"])
		})
	}
	t.Run("plain text", func(t *testing.T) {
		address := serveWith(t, insecure.NewCredentials(), failIfServed(t))
		client := openSource(t, ca, Orchestrator, "", zap.NewNop()).ClientCredentials(Worker, "a")
		require.ErrorContains(t, callOnce(t, client, address), "does not look like a TLS handshake")
		require.Error(t, client.HandshakeError())
	})
	t.Run("no server", func(t *testing.T) {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, lis.Close())
		client := openSource(t, ca, Orchestrator, "", zap.NewNop()).ClientCredentials(Worker, "a")
		require.Error(t, callOnce(t, client, lis.Addr().String()))
		require.NoError(t, client.HandshakeError(), "a lost connection is no failed verification")
	})
}
