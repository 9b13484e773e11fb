package k8s_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func (m mesh) workload(t *testing.T, name string) workload {
	t.Helper()
	all := slices.Concat(m.workloads, m.jobs)
	i := slices.IndexFunc(all, func(w workload) bool { return w.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i]
}

// etcd rejects clients without a certificate and has a certificate with its own name. Only one job has the root
// certificate.
func TestEtcd_AuthenticatesClients(t *testing.T) {
	forEachOverlay(t, func(t *testing.T, m mesh) {
		etcd := m.workload(t, "etcd")
		flags := etcd.container(t).Command
		require.Contains(t, flags, "--client-cert-auth")
		require.Contains(t, flags, "--enable-grpc-gateway=false")
		require.Contains(t, flags, "--listen-client-urls=https://0.0.0.0:2379")
		require.Contains(t, m.certificates["etcd"].Spec.DNSNames, "etcd")
		require.Empty(t, m.certificates["etcd"].Spec.URIs, "it is no process of the mesh")
		require.Equal(t, "root", m.certificates["etcd-root"].Spec.CommonName)
		for _, w := range slices.Concat(m.workloads, m.jobs) {
			for _, v := range w.pod.Spec.Volumes {
				if v.Secret != nil && v.Secret.SecretName == "etcd-root" {
					require.Equal(t, "etcd-users", w.name)
				}
			}
			if isService(w) {
				require.Equal(t, "https://etcd:2379", environment(t, w)["TROUPE_ETCD"], w.name)
			}
		}
		job := m.workload(t, "etcd-users")
		require.Equal(t, []string{"/troupe", "provision", "etcd"}, job.container(t).Command)
		root := m.mountedCertificate(t, job, "TROUPE_ETCD_")
		require.Equal(t, "root", root.Spec.CommonName)
	})
}

// Redis accepts only TLS connections. Its certificate does not identify it as a process of the mesh.
func TestRedis_AcceptsOnlyTLS(t *testing.T) {
	forEachOverlay(t, func(t *testing.T, m mesh) {
		redis := m.workload(t, "redis")
		c := redis.container(t)
		require.Len(t, c.Ports, 1)
		for flag, value := range map[string]string{
			"--port": "0", "--tls-port": strconv.Itoa(int(port(t, c, "redis"))), "--tls-auth-clients": "yes",
		} {
			require.Equal(t, value, c.Args[slices.Index(c.Args, flag)+1], flag)
		}
		own := m.certificates["redis"]
		require.Contains(t, own.Spec.DNSNames, "redis")
		require.Empty(t, own.Spec.URIs)
		require.Empty(t, own.Spec.CommonName, "it is no user of etcd")
		require.Contains(t, own.Spec.Usages, "client auth", "its probe asks as a client")
		require.True(t, slices.ContainsFunc(redis.pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Secret != nil && v.Secret.SecretName == "redis"
		}))
	})
}

// Each service has only the password of its own user.
func TestRedis_EachServiceHasItsUser(t *testing.T) {
	forEachOverlay(t, func(t *testing.T, m mesh) {
		for _, user := range []string{"memory", "orchestrator"} {
			w := m.workload(t, user)
			env := environment(t, w)
			require.Equal(t, "rediss://"+user+"@redis:6379/0", env["TROUPE_REDIS"])
			require.Equal(t, []string{"spiffe://troupe.internal/" + user}, m.mountedCertificate(t, w, "TROUPE_REDIS_").Spec.URIs)
			require.Equal(t, "/etc/troupe/redis/password", env["TROUPE_REDIS_PASSWORD_FILE"])
			for _, v := range w.pod.Spec.Volumes {
				if v.Name == "redis" {
					require.Equal(t, "redis-users", v.Secret.SecretName)
					require.Len(t, v.Secret.Items, 1)
					require.Equal(t, user, v.Secret.Items[0].Key)
				}
			}
		}
	})
}
