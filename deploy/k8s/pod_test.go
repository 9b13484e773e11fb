package k8s_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	memory "github.com/troupe-dev/troupe/services/memory/app"
	orchestrator "github.com/troupe-dev/troupe/services/orchestrator/app"
	worker "github.com/troupe-dev/troupe/services/worker/app"
)

func TestPods_AreHardened(t *testing.T) {
	forEachOverlay(t, func(t *testing.T, m mesh) {
		for _, w := range slices.Concat(m.workloads, m.jobs) {
			pod, c := w.pod.Spec, w.container(t)
			require.NotNil(t, pod.SecurityContext, w.name)
			require.True(t, isTrue(pod.SecurityContext.RunAsNonRoot), w.name)
			require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type, w.name)
			require.True(t, isFalse(pod.AutomountServiceAccountToken), w.name)
			require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC, w.name)
			require.NotNil(t, c.SecurityContext, w.name)
			require.True(t, isTrue(c.SecurityContext.ReadOnlyRootFilesystem), w.name)
			require.True(t, isFalse(c.SecurityContext.AllowPrivilegeEscalation), w.name)
			require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, w.name)
			require.Empty(t, c.SecurityContext.Capabilities.Add, w.name)
			require.NotContains(t, c.Image, "latest", w.name)
			require.Contains(t, c.Image, ":", w.name)
		}
	})
}

func TestPods_HaveLimitsAndTimeToStop(t *testing.T) {
	forEachOverlay(t, func(t *testing.T, m mesh) {
		for _, w := range m.workloads {
			c := w.container(t)
			require.False(t, c.Resources.Requests.Cpu().IsZero(), w.name)
			require.False(t, c.Resources.Requests.Memory().IsZero(), w.name)
			require.False(t, c.Resources.Limits.Memory().IsZero(), w.name)
			require.EqualValues(t, 60, *w.pod.Spec.TerminationGracePeriodSeconds, w.name)
			if isService(w) {
				require.EqualValues(t, 5, c.Lifecycle.PreStop.Sleep.Seconds, w.name)
			}
		}
	})
}

// Readiness depends on the stores and services that a program needs. Liveness and startup do not, because an
// outage of a store would otherwise restart the whole mesh.
func TestPods_HaveProbes(t *testing.T) {
	forEachOverlay(t, func(t *testing.T, m mesh) {
		for _, w := range m.workloads {
			c := w.container(t)
			for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
				require.NotNil(t, p, w.name)
			}
			if !isService(w) {
				continue
			}
			require.Equal(t, "/livez", c.StartupProbe.HTTPGet.Path, w.name)
			require.Equal(t, "/livez", c.LivenessProbe.HTTPGet.Path, w.name)
			require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path, w.name) // its gRPC port accepts only calls of the mesh
		}
	})
}

// Every environment variable of a container belongs to a setting of its program, and the program accepts all
// values.
func TestPods_ConfigureTheirProgram(t *testing.T) {
	forEachOverlay(t, func(t *testing.T, m mesh) {
		for _, w := range m.workloads {
			if !isService(w) {
				continue
			}
			t.Run(w.name, func(t *testing.T) {
				c := w.container(t)
				config := map[string]any{
					"memory": &memory.Config{}, "orchestrator": &orchestrator.Config{}, "worker": &worker.Config{},
				}[w.serviceName(t)]
				require.NotNil(t, config, "troupe serves no %s", w.serviceName(t))
				parser, err := kong.New(config)
				require.NoError(t, err)
				known := map[string]bool{}
				for _, flag := range parser.Model.Flags {
					for _, name := range flag.Envs {
						known[name] = true
					}
				}
				env := environment(t, w)
				for _, name := range slices.Sorted(maps.Keys(env)) {
					require.True(t, known[name] || !strings.HasPrefix(name, "TROUPE_"), "%s has no setting %s", w.serviceName(t), name)
					t.Setenv(name, env[name])
				}
				_, err = parser.Parse(nil)
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf(":%d", port(t, c, "grpc")), env["TROUPE_GRPC_ADDR"])
				require.Equal(t, fmt.Sprintf(":%d", port(t, c, "http")), env["TROUPE_HTTP_ADDR"])
			})
		}
	})
}

// serviceName returns the name of the service that the container runs. One program in the image runs all services.
func (w workload) serviceName(t *testing.T) string {
	t.Helper()
	command := w.container(t).Command
	require.Len(t, command, 3)
	require.Equal(t, []string{"/troupe", "serve"}, command[:2])
	return command[2]
}

// An empty environment variable counts as unset. In particular, an empty path does not select the working
// directory.
func TestPrograms_TreatAnEmptyPathAsUnset(t *testing.T) {
	for name, config := range map[string]any{"memory": &memory.Config{}, "orchestrator": &orchestrator.Config{}, "worker": &worker.Config{}} {
		t.Run(name, func(t *testing.T) {
			parser, err := kong.New(config)
			require.NoError(t, err)
			paths := slices.DeleteFunc(slices.Clone(parser.Model.Flags), func(f *kong.Flag) bool { return f.Tag.Type != "path" || len(f.Envs) == 0 })
			require.NotEmpty(t, paths)
			for _, flag := range paths {
				t.Setenv(flag.Envs[0], "")
			}
			_, err = parser.Parse(nil)
			require.NoError(t, err)
			for _, flag := range paths {
				require.Empty(t, flag.Target.String(), flag.Envs[0])
			}
		})
	}
}

// environment returns the environment that the kubelet would set for the container.
func environment(t *testing.T, w workload) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, v := range w.container(t).Env {
		value := v.Value
		if v.ValueFrom != nil {
			switch path := v.ValueFrom.FieldRef.FieldPath; path {
			case "metadata.name":
				value = w.name + "-0"
			case "status.podIP":
				value = "10.0.0.7"
			case "metadata.labels['troupe.dev/agent']":
				value = w.pod.Labels["troupe.dev/agent"]
				require.Equal(t, w.name, "worker-"+value)
			default:
				require.Fail(t, "a field that this test does not know", path)
			}
		}
		for name, before := range all {
			value = strings.ReplaceAll(value, "$("+name+")", before)
		}
		all[v.Name] = value
	}
	return all
}

// isService reports whether the workload runs a program of this repository.
func isService(w workload) bool { return w.name != "etcd" && w.name != "redis" }

func port(t *testing.T, c corev1.Container, name string) int32 {
	t.Helper()
	i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name })
	require.GreaterOrEqual(t, i, 0, "no port %s", name)
	return c.Ports[i].ContainerPort
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }
