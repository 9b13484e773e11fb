package k8s_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A connection is possible only if the policies of both its source and its target allow it.
func TestNetwork_AllowsOnlyListedConnections(t *testing.T) {
	want := []string{
		"orchestrator -> memory:7401", "orchestrator -> redis:6379", "orchestrator -> etcd:2379",
		"memory -> redis:6379", "memory -> etcd:2379",
	}
	for _, agent := range []string{"coordinator", "clarification", "research", "synthesis"} {
		want = append(want, "orchestrator -> worker-"+agent+":7402",
			"worker-"+agent+" -> memory:7401", "worker-"+agent+" -> etcd:2379")
	}
	forEachOverlay(t, func(t *testing.T, m mesh) {
		var got []string
		for _, from := range m.workloads {
			for _, to := range m.workloads {
				for _, p := range to.container(t).Ports {
					if m.isEgressAllowed(t, from, to, p.ContainerPort) && m.isIngressAllowed(t, from, to, p.ContainerPort) {
						got = append(got, fmt.Sprintf("%s -> %s:%d", from.name, to.name, p.ContainerPort))
					}
				}
			}
		}
		require.ElementsMatch(t, want, got)
	})
}

func TestNetwork_DeniesByDefault(t *testing.T) {
	both := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	forEachOverlay(t, func(t *testing.T, m mesh) {
		require.True(t, slices.ContainsFunc(m.policies, func(p *networkingv1.NetworkPolicy) bool {
			s := p.Spec
			return len(s.PodSelector.MatchLabels)+len(s.PodSelector.MatchExpressions) == 0 &&
				slices.Equal(both, s.PolicyTypes) && len(s.Ingress) == 0
		}))
	})
}

// Clients in other namespaces need a label and can reach only the orchestrator.
func TestNetwork_ClientsReachOnlyTheOrchestrator(t *testing.T) {
	forEachOverlay(t, func(t *testing.T, m mesh) {
		for _, p := range m.policies {
			for _, rule := range p.Spec.Ingress {
				for _, peer := range rule.From {
					require.Nil(t, peer.IPBlock, p.Name)
					if peer.NamespaceSelector == nil {
						continue
					}
					require.Equal(t, "orchestrator", p.Name)
					require.Equal(t, map[string]string{"troupe.dev/client": "true"}, peer.PodSelector.MatchLabels)
					require.True(t, allowsPort(rule.Ports, 7400))
					require.Len(t, rule.Ports, 1)
				}
			}
		}
	})
}

func (m *mesh) isEgressAllowed(t *testing.T, from, to workload, port int32) bool {
	t.Helper()
	return slices.ContainsFunc(m.policies, func(p *networkingv1.NetworkPolicy) bool {
		return selectsPodsOf(t, &p.Spec.PodSelector, from) && slices.ContainsFunc(p.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
			return allowsPort(r.Ports, port) && matchesPeer(t, r.To, to)
		})
	})
}

func (m *mesh) isIngressAllowed(t *testing.T, from, to workload, port int32) bool {
	t.Helper()
	return slices.ContainsFunc(m.policies, func(p *networkingv1.NetworkPolicy) bool {
		return selectsPodsOf(t, &p.Spec.PodSelector, to) && slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return allowsPort(r.Ports, port) && matchesPeer(t, r.From, from)
		})
	})
}

func allowsPort(ports []networkingv1.NetworkPolicyPort, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		return p.Port != nil && *p.Port == intstr.FromInt32(port)
	})
}

// matchesPeer reports whether the peers, as seen from the namespace of the mesh, include the workload. An empty
// list includes every workload.
func matchesPeer(t *testing.T, peers []networkingv1.NetworkPolicyPeer, w workload) bool {
	t.Helper()
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.NamespaceSelector != nil && len(p.NamespaceSelector.MatchLabels) > 0 {
			return false // selects a different namespace by name
		}
		return p.PodSelector == nil || selectsPodsOf(t, p.PodSelector, w)
	})
}
