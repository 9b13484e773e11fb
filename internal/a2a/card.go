package a2a

import (
	"context"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// agentCard describes the mesh to A2A clients as one agent, whose skills are the workflows and the registered
// agents. A message that names a skill is sent to that workflow or agent.
func (b *Bridge) agentCard(ctx context.Context) (*a2a.AgentCard, error) {
	resp, err := b.client.ListAgents(ctx, &troupev1.ListAgentsRequest{})
	if b.forwardsTokens && failure.Is(grpcfailure.FromStatus("card", err), failure.UserUnauthenticated) {
		err = nil // every caller may read the card, but only authenticated callers see the skills
	}
	if err != nil {
		return nil, b.toClientError("card", err)
	}
	binding := func(path string, protocol a2a.TransportProtocol, version a2a.ProtocolVersion) *a2a.AgentInterface {
		return &a2a.AgentInterface{URL: b.url + path, ProtocolBinding: protocol, ProtocolVersion: version}
	}
	card := &a2a.AgentCard{
		Name: b.name, Version: version(),
		Description: "A mesh of agents. Name a skill as target in the metadata of a message to talk with that one.",
		SupportedInterfaces: []*a2a.AgentInterface{
			binding("/", a2a.TransportProtocolJSONRPC, a2a.Version),
			binding("", a2a.TransportProtocolHTTPJSON, a2a.Version),
			binding("/", a2a.TransportProtocolJSONRPC, a2av0.Version),
			binding("", a2a.TransportProtocolHTTPJSON, a2av0.Version),
		},
		Capabilities: a2a.AgentCapabilities{Streaming: true, Extensions: []a2a.AgentExtension{{
			URI: ExtensionURI, Description: "The metadata of every event of a task says what happened in the mesh.",
		}}},
		DefaultInputModes: []string{"text/plain", "application/json", "*/*"}, DefaultOutputModes: []string{"text/plain"},
		Skills: skillsFromAgents(resp.GetAgents()),
	}
	if b.forwardsTokens {
		addTokenRequirement(card)
	}
	return card, nil
}

// skillsFromAgents returns one skill for each workflow, followed by one for each agent.
func skillsFromAgents(agents []*troupev1.Agent) []a2a.AgentSkill {
	members := map[string][]string{}
	all := []a2a.AgentSkill{}
	for _, a := range agents {
		for _, w := range a.GetWorkflows() {
			members[w] = append(members[w], a.GetName())
		}
	}
	for _, w := range slices.Sorted(maps.Keys(members)) {
		all = append(all, a2a.AgentSkill{
			ID: w, Name: w, Description: "Workflow of the agents " + strings.Join(members[w], ", ") + ".",
			Tags: []string{"workflow"},
		})
	}
	for _, a := range agents {
		all = append(all, a2a.AgentSkill{ID: a.GetName(), Name: a.GetName(), Description: a.GetDescription(), Tags: []string{"agent"}})
	}
	return all
}

// version returns the version of the program from its build information.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
