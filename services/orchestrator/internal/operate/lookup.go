package operate

import (
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// newOutcomes returns one outcome for each instance of an agent, without a result yet.
func (o *Operator) newOutcomes(agent string) ([]Outcome, error) {
	var outcomes []Outcome
	var others []string
	for _, in := range o.instances.Instances() {
		if in.Agent == agent {
			outcomes = append(outcomes, Outcome{Instance: in})
		} else if !slices.Contains(others, in.Agent) {
			others = append(others, in.Agent)
		}
	}
	if len(outcomes) == 0 {
		return nil, failure.Newf(failure.NotFound, "operate", "no instance of an agent %q is registered; there are instances of: %s", agent, joinNames(others))
	}
	return outcomes, nil
}

// findInstance returns the instance with the given id. agent may be empty if the id is unique among all agents.
func (o *Operator) findInstance(id, agent string) (registry.Instance, error) {
	var found []registry.Instance
	var ids, agents []string
	for _, in := range o.instances.Instances() {
		if agent != "" && in.Agent != agent {
			continue
		}
		ids = append(ids, in.ID)
		if in.ID == id {
			found, agents = append(found, in), append(agents, in.Agent)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		suffix := ""
		if agent != "" {
			suffix = " of agent " + agent
		}
		return registry.Instance{}, failure.Newf(failure.NotFound, "operate", "no instance%s is called %q; there are: %s", suffix, id, joinNames(ids))
	default:
		return registry.Instance{}, failure.Newf(failure.UserInvalidInput, "operate",
			"instances of several agents are called %q; name the agent: %s", id, joinNames(agents))
	}
}

// joinNames joins the first few names of a list for an error message.
func joinNames(names []string) string {
	const most = 10
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return strings.Join(names[:most], ", ") + ", …"
	default:
		return strings.Join(names, ", ")
	}
}
