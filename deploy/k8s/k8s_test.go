// Package k8s_test renders every overlay and checks the rules that all overlays must follow.
package k8s_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// workload is a Deployment or a StatefulSet.
type workload struct {
	name     string
	selector *metav1.LabelSelector
	pod      corev1.PodTemplateSpec
}

func (w workload) container(t *testing.T) corev1.Container {
	t.Helper()
	require.Len(t, w.pod.Spec.Containers, 1, w.name)
	require.Empty(t, w.pod.Spec.InitContainers, w.name)
	return w.pod.Spec.Containers[0]
}

// mesh holds the objects of a rendered overlay.
type mesh struct {
	namespaces []*corev1.Namespace
	workloads  []workload
	jobs       []workload
	services   []*corev1.Service
	configMaps map[string]*corev1.ConfigMap
	budgets    []*policyv1.PodDisruptionBudget
	policies   []*networkingv1.NetworkPolicy

	certificates map[string]certificate // keyed by the name of their Secret
	issuers      map[string]issuer
}

// forEachOverlay runs the check as a subtest for every overlay.
func forEachOverlay(t *testing.T, check func(*testing.T, mesh)) {
	t.Helper()
	overlays, err := filepath.Glob("overlays/*")
	require.NoError(t, err)
	require.NotEmpty(t, overlays)
	for _, overlay := range overlays {
		t.Run(filepath.Base(overlay), func(t *testing.T) { check(t, render(t, overlay)) })
	}
}

func render(t *testing.T, overlay string) mesh {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	require.NoError(t, err)

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, policyv1.AddToScheme, networkingv1.AddToScheme,
	} {
		require.NoError(t, add(scheme))
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	m := mesh{configMaps: map[string]*corev1.ConfigMap{}, certificates: map[string]certificate{}, issuers: map[string]issuer{}}
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		require.NoError(t, err)
		if r.GetGvk().Group == "cert-manager.io" {
			m.addCertificateOrIssuer(t, r.GetKind(), text)
			continue
		}
		object, _, err := strict.Decode(text, nil, nil)
		require.NoError(t, err, "%s %s", r.GetKind(), r.GetName())
		m.addObject(t, object)
	}
	return m
}

func (m *mesh) addObject(t *testing.T, object runtime.Object) {
	t.Helper()
	switch o := object.(type) {
	case *corev1.Namespace:
		m.namespaces = append(m.namespaces, o)
	case *corev1.Service:
		m.services = append(m.services, o)
	case *corev1.ConfigMap:
		m.configMaps[o.Name] = o
	case *policyv1.PodDisruptionBudget:
		m.budgets = append(m.budgets, o)
	case *networkingv1.NetworkPolicy:
		m.policies = append(m.policies, o)
	case *appsv1.Deployment:
		m.workloads = append(m.workloads, workload{o.Name, o.Spec.Selector, o.Spec.Template})
	case *appsv1.StatefulSet:
		m.workloads = append(m.workloads, workload{o.Name, o.Spec.Selector, o.Spec.Template})
	case *batchv1.CronJob:
		m.jobs = append(m.jobs, workload{o.Name, nil, o.Spec.JobTemplate.Spec.Template})
	default:
		require.Fail(t, "a kind that this test does not know", "%T", o)
	}
}

// selectsPodsOf reports whether the selector selects the pods of the workload.
func selectsPodsOf(t *testing.T, s *metav1.LabelSelector, w workload) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	return selector.Matches(labels.Set(w.pod.Labels))
}

func TestOverlays_HaveAllPartsOfTheMesh(t *testing.T) {
	forEachOverlay(t, func(t *testing.T, m mesh) {
		var names []string
		for _, w := range m.workloads {
			names = append(names, w.name)
		}
		require.ElementsMatch(t, []string{
			"etcd", "redis", "memory", "orchestrator",
			"worker-coordinator", "worker-clarification", "worker-research", "worker-synthesis",
		}, names)
		require.Len(t, m.namespaces, 1)
		require.Equal(t, "restricted", m.namespaces[0].Labels["pod-security.kubernetes.io/enforce"])
	})
}

// Each selector selects the pods of exactly one workload.
func TestOverlays_SelectorsMatchOneWorkload(t *testing.T) {
	forEachOverlay(t, func(t *testing.T, m mesh) {
		for _, of := range m.workloads {
			for _, other := range m.workloads {
				require.Equal(t, of.name == other.name, selectsPodsOf(t, of.selector, other), "%s takes %s", of.name, other.name)
			}
		}
		for _, s := range m.services {
			require.Equal(t, corev1.ClusterIPNone, s.Spec.ClusterIP, "%s: a gRPC connection through a ClusterIP stays on one pod", s.Name)
			for _, w := range m.workloads {
				require.Equal(t, s.Name == w.name, selectsPodsOf(t, &metav1.LabelSelector{MatchLabels: s.Spec.Selector}, w), "%s takes %s", s.Name, w.name)
			}
		}
		require.Len(t, m.budgets, len(m.workloads))
		for _, b := range m.budgets {
			for _, w := range m.workloads {
				require.Equal(t, b.Name == w.name, selectsPodsOf(t, b.Spec.Selector, w), "%s takes %s", b.Name, w.name)
			}
		}
	})
}

// The agents in a pod are the files of the repository, at the paths of their manifests.
func TestOverlays_MountTheAgentsOfTheRepository(t *testing.T) {
	const repository = "../../agents/research-assistant"
	want := map[string]string{}
	for _, pattern := range []string{"*.yaml", "prompts/*"} {
		files, err := filepath.Glob(filepath.Join(repository, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			name, err := filepath.Rel(repository, file)
			require.NoError(t, err)
			want[name] = string(text)
		}
	}
	forEachOverlay(t, func(t *testing.T, m mesh) {
		readers := 0
		for _, w := range slices.Concat(m.workloads, m.jobs) {
			for _, v := range w.pod.Spec.Volumes {
				if v.Projected == nil {
					continue
				}
				readers++
				require.Equal(t, want, m.projectedFiles(t, v.Projected), w.name)
			}
		}
		require.Equal(t, 6, readers, "the orchestrator, four workers, and the job that makes users of etcd")
	})
}

// projectedFiles returns the files of a projected volume, keyed by path.
func (m *mesh) projectedFiles(t *testing.T, v *corev1.ProjectedVolumeSource) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, source := range v.Sources {
		data := m.configMaps[source.ConfigMap.Name]
		require.NotNil(t, data, source.ConfigMap.Name)
		for _, item := range source.ConfigMap.Items {
			require.Contains(t, data.Data, item.Key)
			all[item.Path] = data.Data[item.Key]
		}
		if source.ConfigMap.Items == nil {
			maps.Copy(all, data.Data)
		}
	}
	return all
}
