package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/registry"
)

// Toolbox are the tools that a step of the agent may use, its own and those of the agents that it
// runs, each name once, with what they can do. The orchestrator decides by it. What an agent that is a tool
// uses inside is not among them: it is part of that tool.
func (a *Agent) Toolbox() []registry.Tool {
	var all []registry.Tool
	at := map[string]int{}
	var collect func(a *Agent)
	collect = func(a *Agent) {
		for _, name := range a.Tools() {
			i, known := at[name]
			if !known {
				i = len(all)
				at[name], all = i, append(all, registry.Tool{Name: name})
			}
			// No error: New has checked each list. Those of one name in a flow may be too many together.
			all[i].Capabilities = slices.Concat(all[i].Capabilities, a.config.ToolCapabilities[name])
			slices.Sort(all[i].Capabilities)
			all[i].Capabilities = slices.Compact(all[i].Capabilities)
		}
		for _, sub := range a.config.Agents {
			collect(sub)
		}
	}
	collect(a)
	return all
}

// abilities says what is wrong with what tools are said to do; empty: nothing.
func (a *Agent) abilities() string {
	for _, name := range slices.Sorted(maps.Keys(a.config.ToolCapabilities)) {
		if _, ok := a.tools.Find(name); !ok {
			return fmt.Sprintf("there is no tool %q; there are %s", name, strings.Join(a.Tools(), ", "))
		}
		if _, err := registry.Capabilities(a.config.ToolCapabilities[name]); err != nil {
			return fmt.Sprintf("%s: %v", name, err)
		}
	}
	return ""
}
