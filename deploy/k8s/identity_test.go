package k8s_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/troupe-dev/troupe/internal/identity"
)

// certificate has the fields of a cert-manager Certificate that the manifests use.
type certificate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SecretName  string          `json:"secretName"`
		CommonName  string          `json:"commonName"`
		URIs        []string        `json:"uris"`
		DNSNames    []string        `json:"dnsNames"`
		IPAddresses []string        `json:"ipAddresses"`
		IsCA        bool            `json:"isCA"`
		Usages      []string        `json:"usages"`
		Duration    metav1.Duration `json:"duration"`
		RenewBefore metav1.Duration `json:"renewBefore"`
		PrivateKey  struct {
			Algorithm      string `json:"algorithm"`
			Size           int    `json:"size"`
			RotationPolicy string `json:"rotationPolicy"`
		} `json:"privateKey"`
		IssuerRef struct {
			Name string `json:"name"`
			Kind string `json:"kind"`
		} `json:"issuerRef"`
	} `json:"spec"`
}

// issuer has the fields of a cert-manager Issuer that the manifests use.
type issuer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SelfSigned *struct{} `json:"selfSigned"`
		CA         *struct {
			SecretName string `json:"secretName"`
		} `json:"ca"`
	} `json:"spec"`
}

func (m *mesh) addCertificateOrIssuer(t *testing.T, kind string, text []byte) {
	t.Helper()
	switch kind {
	case "Certificate":
		var c certificate
		require.NoError(t, yaml.UnmarshalStrict(text, &c))
		require.NotContains(t, m.certificates, c.Spec.SecretName)
		m.certificates[c.Spec.SecretName] = c
	case "Issuer":
		var i issuer
		require.NoError(t, yaml.UnmarshalStrict(text, &i))
		m.issuers[i.Name] = i
	default:
		require.Fail(t, "a kind that this test does not know", kind)
	}
}

// Every program has a certificate with its own identity. The mesh's only CA issues it, and it is mounted where the
// settings expect it.
func TestPods_HaveCertificates(t *testing.T) {
	forEachOverlay(t, func(t *testing.T, m mesh) {
		seen := 0
		for _, w := range m.workloads {
			if !isService(w) {
				continue
			}
			seen++
			role, agent, _ := strings.Cut(w.name, "-")
			c := m.mountedCertificate(t, w, "TROUPE_TLS_")
			id := identity.ID{TrustDomain: "troupe.internal", Role: identity.Role(role), Name: agent}
			require.Equal(t, []string{id.String()}, c.Spec.URIs, w.name)
			require.Equal(t, id.EtcdUser(), c.Spec.CommonName, w.name)
			require.Contains(t, c.Spec.Usages, "server auth", w.name)
			require.Contains(t, c.Spec.Usages, "client auth", w.name)
			require.Equal(t, "troupe.internal", environment(t, w)["TROUPE_TRUST_DOMAIN"], w.name)
			if w.name == "orchestrator" {
				c = m.mountedCertificate(t, w, "TROUPE_CLIENT_TLS_")
				require.Empty(t, c.Spec.URIs)
				require.Contains(t, c.Spec.DNSNames, "orchestrator.troupe")
			}
		}
		require.Equal(t, 6, seen, "the orchestrator, the memory service and four workers")
		for name, c := range m.certificates {
			signed := m.issuers[c.Spec.IssuerRef.Name]
			require.Equal(t, "Issuer", c.Spec.IssuerRef.Kind, name)
			require.Equal(t, c.Spec.IsCA, signed.Spec.SelfSigned != nil, name)
			if c.Spec.IsCA {
				continue
			}
			require.True(t, m.certificates[signed.Spec.CA.SecretName].Spec.IsCA, name)
			require.Equal(t, "Always", c.Spec.PrivateKey.RotationPolicy, name)
			require.Greater(t, c.Spec.Duration.Duration, c.Spec.RenewBefore.Duration, name)
		}
	})
}

// mountedCertificate returns the certificate whose Secret is mounted at the paths in the settings with the given
// prefix.
func (m *mesh) mountedCertificate(t *testing.T, w workload, prefix string) certificate {
	t.Helper()
	env := environment(t, w)
	dir, ok := strings.CutSuffix(env[prefix+"CERT"], "/tls.crt")
	require.True(t, ok, w.name)
	require.Equal(t, dir+"/tls.key", env[prefix+"KEY"], w.name)
	if ca, set := env[prefix+"CA"]; set {
		require.Equal(t, dir+"/ca.crt", ca, w.name)
	}
	mounts := w.container(t).VolumeMounts
	i := slices.IndexFunc(mounts, func(v corev1.VolumeMount) bool { return v.MountPath == dir })
	require.GreaterOrEqual(t, i, 0, "%s mounts nothing at %s", w.name, dir)
	volumes := w.pod.Spec.Volumes
	j := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == mounts[i].Name })
	require.GreaterOrEqual(t, j, 0, w.name)
	require.Contains(t, m.certificates, volumes[j].Secret.SecretName, w.name)
	return m.certificates[volumes[j].Secret.SecretName]
}

// Clients authenticate with tokens from a Secret that no manifest contains. Only the development overlay requires
// no tokens.
func TestPods_IdentifyClientsByToken(t *testing.T) {
	forEachOverlay(t, func(t *testing.T, m mesh) {
		for _, w := range m.workloads {
			env := environment(t, w)
			file := env["TROUPE_CLIENT_TOKENS"]
			switch {
			case w.name != "orchestrator":
				require.Empty(t, file, w.name)
			case strings.HasSuffix(t.Name(), "/dev"):
				require.Equal(t, "true", env["TROUPE_INSECURE_ANONYMOUS_CLIENTS"])
				require.Empty(t, file)
			default:
				require.NotContains(t, env, "TROUPE_INSECURE_ANONYMOUS_CLIENTS")
				dir, ok := strings.CutSuffix(file, "/tokens.yaml")
				require.True(t, ok, file)
				mounts, volumes := w.container(t).VolumeMounts, w.pod.Spec.Volumes
				i := slices.IndexFunc(mounts, func(v corev1.VolumeMount) bool { return v.MountPath == dir && v.ReadOnly && v.SubPath == "" })
				require.GreaterOrEqual(t, i, 0, "nothing is mounted at %s, or nothing that follows its Secret", dir)
				j := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == mounts[i].Name })
				require.GreaterOrEqual(t, j, 0)
				require.Equal(t, "orchestrator-tokens", volumes[j].Secret.SecretName)
			}
		}
	})
}
