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

func nobody(t *testing.T) func(ID, bool) {
	return func(who ID, _ bool) { t.Errorf("%s was served", who) }
}

func TestMutual_BothSidesKnowEachOther(t *testing.T) {
	ca := authority(t)
	var caller ID
	address := serve(t, open(t, ca, Memory, "", zap.NewNop()).Server(), func(who ID, ok bool) { caller = who; require.True(t, ok) })
	client := open(t, ca, Worker, "research", zap.NewNop()).Client(Memory, "")
	require.NoError(t, call(t, client, address))
	require.Equal(t, ID{domain, Worker, "research"}, caller)
	require.NoError(t, client.Refusal())
}

func TestMutual_WithoutIdentityIsPlainText(t *testing.T) {
	var none *Source
	known := true
	address := serve(t, none.Server(), func(_ ID, ok bool) { known = ok })
	require.NoError(t, call(t, none.Client(Memory, ""), address))
	require.False(t, known)
}

// Whoever shows no certificate, or a wrong one, is served nothing, and the log of the server
// says why (guarantees S1).
func TestMutual_AServerRefuses(t *testing.T) {
	const id = "spiffe://example.org/orchestrator"
	ca, foreign := authority(t), authority(t)
	expired, early := paper(t, id), paper(t, id)
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	early.NotBefore = time.Now().Add(time.Hour)
	signer := paper(t, id)
	signer.KeyUsage |= x509.KeyUsageCertSign
	named := paper(t)
	named.DNSNames = []string{id}
	for name, c := range map[string]struct {
		shown *tls.Certificate
		max   uint16 // version of TLS
		says  string
	}{
		"no certificate":        {nil, 0, "didn't provide a certificate"},
		"expired":               {pair(t, ca, expired), 0, "expired"},
		"not valid yet":         {pair(t, ca, early), 0, "not yet valid"},
		"another CA":            {pair(t, foreign, paper(t, id)), 0, "unknown authority"},
		"another trust domain":  {pair(t, ca, paper(t, "spiffe://example.com/orchestrator")), 0, "spiffe://example.com/orchestrator is of another trust domain than example.org"},
		"two URIs":              {pair(t, ca, paper(t, id, "spiffe://example.org/memory")), 0, "more than one URI SAN"},
		"twice the same URI":    {pair(t, ca, paper(t, id, id)), 0, "more than one URI SAN"},
		"no URI":                {pair(t, ca, paper(t)), 0, "no URI SAN"},
		"a DNS name like a URI": {pair(t, ca, named), 0, "no URI SAN"},
		"no SPIFFE id":          {pair(t, ca, paper(t, "https://example.org/orchestrator")), 0, "scheme"},
		"nobody of a mesh":      {pair(t, ca, paper(t, "spiffe://example.org/sa/orchestrator")), 0, "is nobody in a mesh"},
		"a path that goes on":   {pair(t, ca, paper(t, id+"/x")), 0, "is nobody in a mesh"},
		"may sign others":       {pair(t, ca, signer), 0, "KeyCertSign"},
		"TLS 1.2":               {pair(t, ca, paper(t, id)), tls.VersionTLS12, "unsupported versions"},
	} {
		t.Run(name, func(t *testing.T) {
			log, next := warnings(t)
			address := serve(t, open(t, ca, Memory, "", log).Server(), nobody(t))
			shows := &tls.Config{InsecureSkipVerify: true, MaxVersion: c.max}
			if c.shown != nil {
				shows.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.shown, nil }
			}
			require.Error(t, call(t, credentials.NewTLS(shows), address))
			said := next()
			require.Equal(t, "connection refused", said["message"])
			require.Contains(t, said["error"], c.says)
			require.Contains(t, said["from"], "127.0.0.1:")
		})
	}
	t.Run("plain text", func(t *testing.T) {
		log, next := warnings(t)
		address := serve(t, open(t, ca, Memory, "", log).Server(), nobody(t))
		require.Error(t, call(t, insecure.NewCredentials(), address))
		require.Contains(t, next()["error"], "does not look like a TLS handshake")
	})
}

func pair(t *testing.T, ca *CA, cert *x509.Certificate) *tls.Certificate {
	t.Helper()
	made := ca.certify(t, cert)
	return &made
}

// A client talks to nobody but whom it wants, whatever is at its address (guarantees S1, S16).
func TestMutual_AClientRefuses(t *testing.T) {
	ca, foreign := authority(t), authority(t)
	const id = "spiffe://example.org/worker/a"
	expired := paper(t, id)
	expired.NotAfter = time.Now().Add(-time.Second)
	for name, c := range map[string]struct {
		shown *tls.Certificate
		max   uint16
		says  string
	}{
		"another agent":        {pair(t, ca, paper(t, "spiffe://example.org/worker/b")), 0, "it is spiffe://example.org/worker/b there, and not spiffe://example.org/worker/a"},
		"another role":         {pair(t, ca, paper(t, "spiffe://example.org/memory")), 0, "it is spiffe://example.org/memory there"},
		"another trust domain": {pair(t, ca, paper(t, "spiffe://example.com/worker/a")), 0, "is of another trust domain"},
		"another CA":           {pair(t, foreign, paper(t, id)), 0, "unknown authority"},
		"expired":              {pair(t, ca, expired), 0, "expired"},
		"two URIs":             {pair(t, ca, paper(t, id, "spiffe://example.org/worker/b")), 0, "more than one URI SAN"},
		"no URI":               {pair(t, ca, paper(t)), 0, "no URI SAN"},
		"TLS 1.2":              {pair(t, ca, paper(t, id)), tls.VersionTLS12, "protocol version not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			log, next := warnings(t)
			address := serve(t, credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{*c.shown}, MaxVersion: c.max}), nobody(t))
			client := open(t, ca, Orchestrator, "", log).Client(Worker, "a")
			require.ErrorContains(t, call(t, client, address), c.says)
			if c.max != 0 {
				return // there is no certificate to refuse
			}
			require.ErrorContains(t, client.Refusal(), c.says)
			said := next()
			require.Equal(t, "the process at the other end is refused", said["message"])
			require.Equal(t, address, said["at"])
		})
	}
	t.Run("plain text", func(t *testing.T) {
		address := serve(t, insecure.NewCredentials(), nobody(t))
		client := open(t, ca, Orchestrator, "", zap.NewNop()).Client(Worker, "a")
		require.ErrorContains(t, call(t, client, address), "does not look like a TLS handshake")
		require.Error(t, client.Refusal())
	})
	t.Run("nobody is there", func(t *testing.T) {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, lis.Close())
		client := open(t, ca, Orchestrator, "", zap.NewNop()).Client(Worker, "a")
		require.Error(t, call(t, client, lis.Addr().String()))
		require.NoError(t, client.Refusal(), "that is no refusal")
	})
}
