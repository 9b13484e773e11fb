package routing

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// workflowWithChoice returns a workflow whose first step has no agent, so that routing chooses one.
func workflowWithChoice(t *testing.T, choose string) *workflow.Workflow {
	t.Helper()
	set, err := workflow.Load(fstest.MapFS{"w.yaml": {Data: []byte(`apiVersion: troupe.dev/v1
kind: Workflow
metadata: {name: w}
spec:
  entry: desk
  steps:
    desk: {routes: [billing, support, law], ` + choose + `}
    billing: {agent: billing, end: true}
    support: {agent: support, end: true}
    law: {agent: law, end: true}
`)}}, "")
	require.NoError(t, err)
	flow, _ := set.Find("w")
	return flow
}

// agentCandidate returns the state of an agent of the workflow as a candidate.
func agentCandidate(agent string) choice.Candidate {
	can := map[string][]string{"billing": {"tax"}, "support": {"tax", "law"}, "law": {"law"}}[agent]
	load := map[string]int32{"billing": 3, "support": 2, "law": 1}[agent]
	return choice.CombineInstances(agent, []choice.Candidate{choice.CandidateFromInstance(selection.Candidate{
		ID: agent + "-1", Capacity: 4, InFlight: load,
		Capabilities: can,
	}, selection.Available)})
}

var fullRequest = selection.Request{
	TraceID: "t", Profile: "fast", Goal: "a bill", Task: "desk", Metadata: map[string]string{"team": "blue"}, Needs: []string{"law"}, Parent: "u",
}

// Only the routing authority makes decisions: no other package calls Decide or constructs a Decision.
// Req: OC-13
func TestAuthority_IsTheOnlyCallerOfDecide(t *testing.T) {
	const root, own = "../../../..", "services/orchestrator/internal/routing"
	decisions := map[string]bool{"routing.Decision": true, "selection.Decision": true, "choice.Decision": true}
	looked := 0
	require.NoError(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(file, root+"/"))
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && !strings.HasPrefix(d.Name(), ".."), name == own, name == "pkg/gen":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		looked++
		ast.Inspect(source, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				made := qualifiedName(n.Type)
				if len(n.Elts) > 0 && (decisions[made] || made == "troupev1.RoutingDecision" || made == "troupev1.RoutingInput") {
					t.Errorf("%s makes a %s; only %s may", name, made, own)
				}
			case *ast.CallExpr:
				if called := qualifiedName(n.Fun); called == "selection.Decide" || called == "choice.Decide" {
					t.Errorf("%s calls %s; only %s may", name, called, own)
				}
			}
			return true
		})
		return nil
	}))
	require.Greater(t, looked, 300, "otherwise the test proves nothing")
}

// qualifiedName returns a selector expression as it is written in the source: package.Name.
func qualifiedName(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if pkg, ok := s.X.(*ast.Ident); ok {
			return pkg.Name + "." + s.Sel.Name
		}
	}
	return ""
}

// The authority has one method each for agents, instances and tools. All three receive the same request, and the
// same facts about candidates.
// Req: OC-13, OC-14
func TestAuthority_PassesTheSameRequestToAllDecisions(t *testing.T) {
	a := NewAuthority()
	flow := workflowWithChoice(t, "choose: {needs: [tax]}")
	agent, err := a.ChooseAgent(flow, flow.Steps["desk"], fullRequest, agentCandidate)
	require.NoError(t, err)
	require.Equal(t, "support", agent.Target, "it has what the step needs, and what the call does")
	want := fullRequest
	want.Needs = []string{"tax", "law"}
	require.Equal(t, want, agent.Input.Request)

	instance := a.ChooseInstance(selection.Input{
		Request: fullRequest, Candidates: []selection.Candidate{{ID: "b-0", Capacity: 4}},
		Sizes: selection.ClassSizes{1},
	})
	require.Equal(t, "b-0", instance.Target)
	require.Equal(t, fullRequest, instance.Input.Request)

	step := workflow.Step{Name: "desk", Agent: "support", Tools: choice.Policy{Needs: []string{"law"}}}
	tools := []registry.Tool{{Name: "search", Capabilities: []string{"law"}}, {Name: "mail"}}
	tool, err := a.ChooseTools(step, fullRequest, tools)
	require.NoError(t, err)
	require.Equal(t, []string{"search"}, tool.Chosen())
	require.Equal(t, fullRequest, tool.Input.Request)

	require.Equal(t, choice.Candidate{
		ID: "support", Name: "support", Type: choice.Agent, Capabilities: []string{"law", "tax"}, Metadata: map[string]string{"instances": "1"},
		Available: true, Load: 0.5,
	}, agent.Input.Candidates[1])
	require.Equal(t, choice.Candidate{ID: "search", Name: "search", Type: choice.Tool, Capabilities: []string{"law"}, Available: true},
		tool.Input.Candidates[0])
	require.Equal(t, choice.Candidate{
		ID: "b-0", Name: "b-0", Type: choice.Worker, Capabilities: []string{"gpu"}, Metadata: map[string]string{"version": "v1", "incarnation": "7"},
		Available: true, Load: 0.25,
	}, choice.CandidateFromInstance(selection.Candidate{
		ID: "b-0", Version: "v1", Incarnation: 7, InFlight: 1, Capacity: 4,
		Capabilities: []string{"gpu"},
	}, selection.Available))
	require.Equal(t, []string{"TraceID", "Profile", "Goal", "Task", "Metadata", "Needs", "Parent"}, fieldNames(selection.Request{}))
	require.Equal(t, []string{"ID", "Name", "Type", "Capabilities", "Metadata", "Available", "Availability", "Load", "Priority"},
		fieldNames(choice.Candidate{}))
}

func fieldNames(v any) (names []string) {
	for f := range reflect.TypeOf(v).Fields() {
		names = append(names, f.Name)
	}
	return names
}

// The test covers each strategy, its default for agents, workers and tools, and the result when no candidate is
// available.
// Req: OC-16
func TestAuthority_ChoosesByStrategy(t *testing.T) {
	for choose, want := range map[string]struct {
		targets  []string // of three decisions
		strategy troupev1.RoutingStrategy
	}{
		"":                                  {[]string{"billing", "billing", "billing"}, troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY},
		"choose: {needs: [law]}":            {[]string{"support", "support", "support"}, troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY},
		"choose: {strategy: capability}":    {[]string{"billing", "billing", "billing"}, troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY},
		"choose: {strategy: round_robin}":   {[]string{"billing", "support", "law"}, troupev1.RoutingStrategy_ROUTING_STRATEGY_ROUND_ROBIN},
		"choose: {strategy: load_balanced}": {[]string{"law", "law", "law"}, troupev1.RoutingStrategy_ROUTING_STRATEGY_LOAD_BALANCED},
		"choose: {strategy: priority, priorities: {support: 1}}": {
			[]string{"support", "support", "support"},
			troupev1.RoutingStrategy_ROUTING_STRATEGY_PRIORITY,
		},
		"choose: {strategy: manual, step: law}": {[]string{"law", "law", "law"}, troupev1.RoutingStrategy_ROUTING_STRATEGY_MANUAL},
	} {
		a, flow := NewAuthority(), workflowWithChoice(t, choose)
		var got []string
		for range 3 {
			d, err := a.ChooseAgent(flow, flow.Steps["desk"], selection.Request{}, agentCandidate)
			require.NoError(t, err)
			got = append(got, d.Target)
			require.Equal(t, want.strategy, RecordChoice(d, 1, 0).GetStrategy())
		}
		require.Equal(t, want.targets, got, choose)
		away := func(agent string) choice.Candidate { return choice.CombineInstances(agent, nil) }
		d, err := a.ChooseAgent(flow, flow.Steps["desk"], selection.Request{}, away)
		require.True(t, failure.Is(err, failure.NoWorker), choose)
		require.Equal(t, "no_worker: step desk: "+d.Reason, string(failure.ModeOf(err))+": "+failure.PlainMessage(err))
		require.Equal(t, []choice.Rejected{{ID: "billing", Availability: selection.Absent}, {ID: "support", Availability: selection.Absent}, {
			ID:           "law",
			Availability: selection.Absent,
		}}, d.Rejected)
		only := func(agent string) choice.Candidate {
			if agent != "law" {
				return away(agent)
			}
			return agentCandidate(agent)
		}
		d, err = a.ChooseAgent(flow, flow.Steps["desk"], selection.Request{}, only)
		require.NoError(t, err)
		require.Equal(t, "law", d.Target, "those that are not available are left out first")
	}

	a := NewAuthority()
	instance := a.ChooseInstance(selection.Input{Candidates: []selection.Candidate{{ID: "b-0", Capacity: 4}}, Sizes: selection.ClassSizes{1}})
	require.Equal(t, selection.RoundRobin, instance.Strategy)
	require.Empty(t, a.ChooseInstance(selection.Input{}).Target, "of which dispatch makes no_worker")

	step := workflow.Step{Name: "s", Agent: "x", Tools: choice.Policy{Needs: []string{"web"}}}
	tool, err := a.ChooseTools(step, selection.Request{}, []registry.Tool{{Name: "fetch", Capabilities: []string{"web"}}})
	require.NoError(t, err)
	require.Equal(t, selection.Capability, tool.Strategy)
	_, err = a.ChooseTools(step, selection.Request{}, []registry.Tool{{Name: "clock"}})
	require.True(t, failure.Is(err, failure.AgentContract))
	require.Equal(t, "step s may use none of the 1 tools of agent x: no tool can be chosen: clock has nothing of what the step needs; "+
		"declare what they can do, or change the step's tools", failure.PlainMessage(err))
	none, err := a.ChooseTools(step, selection.Request{}, nil)
	require.True(t, failure.Is(err, failure.AgentContract))
	require.Equal(t, "agent x has no tools; give it some, or remove tools from step s", failure.PlainMessage(err))
	require.Equal(t, "there is no tool to choose", none.Reason, "which the decision records")
}

// Req: OC-17
func TestAuthority_ConcurrentDecisionsGetDifferentCounters(t *testing.T) {
	a, flow := NewAuthority(), workflowWithChoice(t, "choose: {strategy: round_robin}")
	var mu sync.Mutex
	var choosing sync.WaitGroup
	had := map[string]int{}
	for range 8 {
		choosing.Go(func() {
			for range 30 {
				d, _ := a.ChooseAgent(flow, flow.Steps["desk"], selection.Request{}, agentCandidate)
				mu.Lock()
				had[d.Target]++
				mu.Unlock()
			}
		})
	}
	choosing.Wait()
	require.Equal(t, map[string]int{"billing": 80, "support": 80, "law": 80}, had)
}

// A recorded choice is followed even if the strategy would choose another agent now. It fails only if the workflow
// has changed.
func TestDecisionFromRecord_FollowsTheRecordedChoice(t *testing.T) {
	flow := workflowWithChoice(t, "choose: {strategy: load_balanced}")
	record := &troupev1.RoutingDecision{Target: "support", Step: "support", Reason: "it was so", Choice: 2, Confidence: 0.8}
	d, err := DecisionFromRecord(flow, flow.Steps["desk"], record)
	require.NoError(t, err)
	require.Equal(t, "support", d.Step.Name)
	require.Same(t, record, d.Proto(), "and it is returned unchanged")
	for _, other := range []*troupev1.RoutingDecision{{Target: "x", Step: "support"}, {Target: "x", Step: "gone"}, {Target: "", Step: "desk"}} {
		_, err := DecisionFromRecord(flow, flow.Steps["desk"], other)
		require.True(t, failure.Is(err, failure.Nondeterminism))
	}
}
