package identity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// edge is the TLS of a port for clients with certificates of the CA.
func edge(t *testing.T, ca *CA) Edge {
	t.Helper()
	cfg := write(t, t.TempDir(), ca, ca.certify(t, paper(t)))
	return Edge{Cert: cfg.Cert, Key: cfg.Key}
}

func trust(t *testing.T, ca *CA) Trust {
	t.Helper()
	cfg := write(t, t.TempDir(), ca, ca.certify(t, paper(t)))
	return Trust{CA: cfg.CA, Cert: cfg.Cert, Key: cfg.Key}
}

func TestEdge_ClientsKnowTheServerByItsName(t *testing.T) {
	ca, foreign := authority(t), authority(t)
	shown, err := edge(t, ca).Open(zap.NewNop())
	require.NoError(t, err)
	served := 0
	address := serve(t, shown.Credentials(), func(_ ID, known bool) { served++; require.False(t, known) })
	for _, c := range []struct {
		trust Trust
		says  string
	}{
		{Trust{CA: trust(t, ca).CA}, ""},
		{Trust{CA: trust(t, foreign).CA}, "unknown authority"},
		{Trust{CA: SystemCA}, "unknown authority"},
		{Trust{}, "server preface"},
	} {
		client, err := c.trust.Credentials()
		require.NoError(t, err)
		err = call(t, client, address)
		if c.says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.says)
	}
	require.Equal(t, 1, served)
}

func TestEdge_MayAskClientsForACertificate(t *testing.T) {
	ca, clients := authority(t), authority(t)
	e := edge(t, ca)
	e.CA = trust(t, clients).CA
	shown, err := e.Open(zap.NewNop())
	require.NoError(t, err)
	address := serve(t, shown.Credentials(), func(ID, bool) {})
	known := trust(t, clients)
	for _, c := range []struct {
		trust Trust
		ok    bool
	}{
		{Trust{CA: trust(t, ca).CA, Cert: known.Cert, Key: known.Key}, true},
		{Trust{CA: trust(t, ca).CA}, false},
		{trust(t, ca), false},
	} {
		client, err := c.trust.Credentials()
		require.NoError(t, err)
		require.Equal(t, c.ok, call(t, client, address) == nil)
	}
}

// The certificate is replaced while the server runs; one that cannot be used is told, and the
// last one stays.
func TestEdge_TakesUpNewCertificates(t *testing.T) {
	before, after := authority(t), authority(t)
	dir := t.TempDir()
	cfg := write(t, dir, before, before.certify(t, paper(t)))
	log, next := warnings(t)
	shown, err := Edge{Cert: cfg.Cert, Key: cfg.Key}.Open(log)
	require.NoError(t, err)
	address := serve(t, shown.Credentials(), func(ID, bool) {})
	client := func(ca *CA) error {
		creds, err := Trust{CA: trust(t, ca).CA}.Credentials()
		require.NoError(t, err)
		return call(t, creds, address)
	}
	require.NoError(t, client(before))
	require.NoError(t, os.WriteFile(cfg.Key, nil, 0o600))
	require.NoError(t, client(before))
	require.Contains(t, next()["error"], "--client-tls-cert")
	write(t, dir, after, after.certify(t, paper(t)))
	require.NoError(t, client(after))
	require.Error(t, client(before))
}

func TestEdge_SaysWhatIsWrong(t *testing.T) {
	ca := authority(t)
	good := edge(t, ca)
	for _, c := range []struct {
		edge Edge
		says string
	}{
		{Edge{Cert: good.Cert}, "--client-tls-cert and --client-tls-key belong together"},
		{Edge{CA: good.Cert}, "--client-tls-ca needs both"},
		{Edge{Cert: good.Cert, Key: filepath.Join(t.TempDir(), "none")}, "--client-tls-key: open "},
		{Edge{Cert: good.Cert, Key: good.Key, CA: garbage(t)}, "--client-tls-ca: "},
	} {
		_, err := c.edge.Open(zap.NewNop())
		require.ErrorContains(t, err, c.says)
	}
	for _, c := range []struct {
		trust Trust
		says  string
	}{
		{Trust{Cert: "c", Key: "k"}, "--tls-ca: a certificate is shown over TLS only"},
		{Trust{CA: SystemCA, Cert: "c"}, "--tls-cert and --tls-key belong together"},
		{Trust{CA: garbage(t)}, "--tls-ca: "},
		{Trust{CA: SystemCA, Cert: "c", Key: "k"}, "--tls-cert: "},
	} {
		_, err := c.trust.Credentials()
		require.ErrorContains(t, err, c.says)
	}
	none, err := Edge{}.Open(zap.NewNop())
	require.NoError(t, err)
	require.Nil(t, none)
	require.Nil(t, none.Credentials())
}
