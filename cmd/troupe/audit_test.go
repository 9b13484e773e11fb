package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/audit"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestAudit_VerifiesAndShows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := audit.New(audit.Config{Path: path, Name: "memory", Log: zap.NewNop(), Meter: noop.Meter{}})
	require.NoError(t, err)
	log.Record(audit.Entry{Kind: audit.Denied, Actor: "worker research", Action: "/a.B/C", Result: "policy_security"})
	log.Record(audit.Entry{Kind: audit.Admin, Actor: "admin ada", Action: "/a.B/D", Object: "research", Result: "ok"})
	require.NoError(t, log.Close())
	whole, err := audit.Verify([]string{path}, "", nil)
	require.NoError(t, err)
	told := func(want int, args ...string) string {
		var out bytes.Buffer
		require.Equal(t, want, run(t.Context(), append([]string{"audit"}, args...), terminal{out: &out, err: &out}), out.String())
		return out.String()
	}
	text := told(0, "verify", path)
	require.Contains(t, text, "4 lines, number 1 to 4, from ")
	require.Contains(t, text, "head  "+whole.Head)
	require.Contains(t, text, "with --head it would show")
	require.Contains(t, told(0, "verify", path, "--head", whole.Head), "the head that you know is in it")
	require.Contains(t, told(1, "verify", path, "--head", strings.Repeat("0", 64)), "lines are missing at the end")
	for _, no := range []string{"zz", whole.Head[:12], whole.Head + "0", strings.Repeat("g", 64), strings.Repeat("A", 64)} {
		text = told(2, "verify", path, "--head", no)
		require.Contains(t, text, "--head: a hash has 64 digits of 0-9 and a-f; give the whole head")
		require.NotContains(t, text, "BROKEN")
	}

	text = told(0, "show", path, "--kind", "admin")
	require.Contains(t, text, "admin ada")
	require.NotContains(t, text, "worker research")
	for _, kind := range []audit.Kind{audit.Denied, audit.Violation, audit.Admin, audit.Lifecycle, audit.Takeover, audit.Credential, audit.Own} {
		require.Contains(t, told(0, "show", path, "--kind", string(kind)), "TIME", kind)
	}
	require.Contains(t, told(2, "show", path, "--kind", "foo"), "--kind must be one of ")
	require.Contains(t, told(0, "show", path, "--actor", "research", "--since", "1h"), "worker research")

	stored, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Replace(stored, []byte("admin ada"), []byte("admin bob"), 1), 0o600))
	require.Contains(t, told(1, "verify", path), "BROKEN  "+path+":4: line 3 is not as it was written")
	require.Contains(t, told(1, "show", path), path+":4:")
}

// sealed is an orchestrator that knows of one agent that is shut out.
type sealed struct {
	troupev1.UnimplementedOrchestratorServiceServer
	asked []string
}

func (s *sealed) QuarantineAgent(_ context.Context, req *troupev1.QuarantineAgentRequest) (*troupev1.QuarantineAgentResponse, error) {
	s.asked = append(s.asked, req.GetAgent()+": "+req.GetReason())
	return &troupev1.QuarantineAgentResponse{}, nil
}

func (s *sealed) ReleaseAgent(_ context.Context, req *troupev1.ReleaseAgentRequest) (*troupev1.ReleaseAgentResponse, error) {
	s.asked = append(s.asked, "release "+req.GetAgent())
	return &troupev1.ReleaseAgentResponse{}, nil
}

func out() *troupev1.Quarantine {
	return &troupev1.Quarantine{Reason: "it misbehaves", Since: timestamppb.New(time.Now())}
}

func (s *sealed) ListAgents(context.Context, *troupev1.ListAgentsRequest) (*troupev1.ListAgentsResponse, error) {
	return &troupev1.ListAgentsResponse{Agents: []*troupev1.Agent{{Name: "research", Quarantine: out()}}}, nil
}

func (s *sealed) instance() *troupev1.Instance {
	return &troupev1.Instance{InstanceId: "r-1", Agent: "research", Quarantine: out(), Unproven: "it is another", State: troupev1.InstanceState_INSTANCE_STATE_READY}
}

func (s *sealed) ListInstances(context.Context, *troupev1.ListInstancesRequest) (*troupev1.ListInstancesResponse, error) {
	return &troupev1.ListInstancesResponse{Instances: []*troupev1.Instance{s.instance()}}, nil
}

func (s *sealed) DescribeInstance(context.Context, *troupev1.DescribeInstanceRequest) (*troupev1.DescribeInstanceResponse, error) {
	return &troupev1.DescribeInstanceResponse{Instance: s.instance()}, nil
}

func TestQuarantine_IsAskedForAndShown(t *testing.T) {
	s := &sealed{}
	addr := served(t, func(r grpc.ServiceRegistrar) { troupev1.RegisterOrchestratorServiceServer(r, s) })
	told := func(want int, args ...string) string {
		var text bytes.Buffer
		require.Equal(t, want, run(t.Context(), append(args, "--addr", addr), terminal{out: &text, err: &text}), text.String())
		return text.String()
	}
	require.Contains(t, told(0, "quarantine", "research", "--reason", "it misbehaves"), "is that its name?")
	require.Contains(t, told(2, "quarantine", "research"), "--reason")
	told(0, "release", "research")
	require.Equal(t, []string{"research: it misbehaves", "release research"}, s.asked)
	require.Contains(t, told(0, "get", "agents"), "quarantined for 0s: it misbehaves")
	require.Contains(t, told(0, "get", "instances"), "ready, quarantined, unproven")
	text := told(0, "describe", "instance", "r-1")
	require.Contains(t, text, "quarantined for 0s: it misbehaves")
	require.Contains(t, text, "it is another")
}
