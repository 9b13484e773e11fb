package identity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// newEdge returns an EdgeConfig whose certificate is signed by the CA.
func newEdge(t *testing.T, ca *CA) EdgeConfig {
	t.Helper()
	cfg := writeFiles(t, t.TempDir(), ca, ca.certify(t, certTemplate(t)))
	return EdgeConfig{Cert: cfg.Cert, Key: cfg.Key}
}

func newClientTLS(t *testing.T, ca *CA) ClientTLS {
	t.Helper()
	cfg := writeFiles(t, t.TempDir(), ca, ca.certify(t, certTemplate(t)))
	return ClientTLS{CA: cfg.CA, Cert: cfg.Cert, Key: cfg.Key}
}

func TestEdge_ClientsVerifyTheHostName(t *testing.T) {
	ca, foreign := newCA(t), newCA(t)
	shown, err := newEdge(t, ca).Open(zap.NewNop())
	require.NoError(t, err)
	served := 0
	address := serveWith(t, shown.Credentials(), func(_ ID, known bool) { served++; require.False(t, known) })
	for _, c := range []struct {
		trust ClientTLS
		says  string
	}{
		{ClientTLS{CA: newClientTLS(t, ca).CA}, ""},
		{ClientTLS{CA: newClientTLS(t, foreign).CA}, "unknown authority"},
		{ClientTLS{CA: SystemCA}, "unknown authority"},
		{ClientTLS{}, "server preface"},
	} {
		client, err := c.trust.Credentials()
		require.NoError(t, err)
		err = callOnce(t, client, address)
		if c.says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.says)
	}
	require.Equal(t, 1, served)
}

func TestEdge_RequiresClientCertificates(t *testing.T) {
	ca, clients := newCA(t), newCA(t)
	e := newEdge(t, ca)
	e.CA = newClientTLS(t, clients).CA
	shown, err := e.Open(zap.NewNop())
	require.NoError(t, err)
	address := serveWith(t, shown.Credentials(), func(ID, bool) {})
	known := newClientTLS(t, clients)
	for _, c := range []struct {
		trust ClientTLS
		ok    bool
	}{
		{ClientTLS{CA: newClientTLS(t, ca).CA, Cert: known.Cert, Key: known.Key}, true},
		{ClientTLS{CA: newClientTLS(t, ca).CA}, false},
		{newClientTLS(t, ca), false},
	} {
		client, err := c.trust.Credentials()
		require.NoError(t, err)
		require.Equal(t, c.ok, callOnce(t, client, address) == nil)
	}
}

// The certificate can be replaced while the server runs. An invalid one is logged, and the last valid one stays in
// use.
func TestEdge_ReloadsCertificates(t *testing.T) {
	before, after := newCA(t), newCA(t)
	dir := t.TempDir()
	cfg := writeFiles(t, dir, before, before.certify(t, certTemplate(t)))
	log, next := newWarningLog(t)
	shown, err := EdgeConfig{Cert: cfg.Cert, Key: cfg.Key}.Open(log)
	require.NoError(t, err)
	address := serveWith(t, shown.Credentials(), func(ID, bool) {})
	client := func(ca *CA) error {
		creds, err := ClientTLS{CA: newClientTLS(t, ca).CA}.Credentials()
		require.NoError(t, err)
		return callOnce(t, creds, address)
	}
	require.NoError(t, client(before))
	require.NoError(t, os.WriteFile(cfg.Key, nil, 0o600))
	require.NoError(t, client(before))
	require.Contains(t, next()["error"], "--client-tls-cert")
	writeFiles(t, dir, after, after.certify(t, certTemplate(t)))
	require.NoError(t, client(after))
	require.Error(t, client(before))
}

func TestEdge_RejectsInvalidFlags(t *testing.T) {
	ca := newCA(t)
	good := newEdge(t, ca)
	for _, c := range []struct {
		edge EdgeConfig
		says string
	}{
		{EdgeConfig{Cert: good.Cert}, "--client-tls-cert and --client-tls-key belong together"},
		{EdgeConfig{CA: good.Cert}, "--client-tls-ca needs both"},
		{EdgeConfig{Cert: good.Cert, Key: filepath.Join(t.TempDir(), "none")}, "--client-tls-key: open "},
		{EdgeConfig{Cert: good.Cert, Key: good.Key, CA: garbageFile(t)}, "--client-tls-ca: "},
	} {
		_, err := c.edge.Open(zap.NewNop())
		require.ErrorContains(t, err, c.says)
	}
	for _, c := range []struct {
		trust ClientTLS
		says  string
	}{
		{ClientTLS{Cert: "c", Key: "k"}, "--tls-ca: a client certificate is sent only over TLS"},
		{ClientTLS{CA: SystemCA, Cert: "c"}, "--tls-cert and --tls-key belong together"},
		{ClientTLS{CA: garbageFile(t)}, "--tls-ca: "},
		{ClientTLS{CA: SystemCA, Cert: "c", Key: "k"}, "--tls-cert: "},
	} {
		_, err := c.trust.Credentials()
		require.ErrorContains(t, err, c.says)
	}
	none, err := EdgeConfig{}.Open(zap.NewNop())
	require.NoError(t, err)
	require.Nil(t, none)
	require.Nil(t, none.Credentials())
}
