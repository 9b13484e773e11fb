package tool

import (
	"slices"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Set is an ordered list of tools with unique names. It does not change once it is made.
// The nil Set is empty.
type Set struct {
	tools  []Tool
	byName map[string]Tool
}

// NewSet returns a set of tools in the given order. It fails with agent_validation for a nil tool, for an invalid
// or duplicate name, and for a login that cannot be answered (CO-59).
func NewSet(tools ...Tool) (*Set, error) {
	s := &Set{byName: map[string]Tool{}}
	for i, t := range tools {
		if t == nil {
			return nil, failure.Newf(failure.AgentValidation, "tool.NewSet", "tool %d is nil: leave it out", i+1)
		}
		name := t.Spec().Name
		if err := checkName(name); err != nil {
			return nil, err
		}
		if _, ok := s.byName[name]; ok {
			return nil, failure.Newf(failure.AgentValidation, "tool.NewSet",
				"two tools are named %q: rename one", name)
		}
		if login, ok := LoginOf(t); ok {
			if wrong := loginProblem(login); wrong != "" {
				return nil, failure.Newf(failure.AgentValidation, "tool.NewSet", "tool %s: the login that it needs: %s", name, wrong)
			}
		}
		s.tools = append(s.tools, t)
		s.byName[name] = t
	}
	return s, nil
}

// Find returns the tool with the given name, and whether the set has one.
func (s *Set) Find(name string) (Tool, bool) {
	if s == nil {
		return nil, false
	}
	t, ok := s.byName[name]
	return t, ok
}

// Tools returns all tools, in order.
func (s *Set) Tools() []Tool {
	if s == nil {
		return nil
	}
	return slices.Clone(s.tools)
}

// Names returns the names of all tools, in order.
func (s *Set) Names() []string {
	var names []string
	for _, t := range s.Tools() {
		names = append(names, t.Spec().Name)
	}
	return names
}

// Only returns the set of the tools that a step may use, in the order of allowed. It ignores unknown names. If the
// step may use all tools, Only returns the set itself.
func (s *Set) Only(allowed *execution.Tools) *Set {
	if s == nil || allowed == nil {
		return s
	}
	few := &Set{byName: map[string]Tool{}}
	for _, name := range allowed.Names {
		if t, ok := s.byName[name]; ok && few.byName[name] == nil {
			few.tools = append(few.tools, t)
			few.byName[name] = t
		}
	}
	return few
}

// Specs returns the specs of the tools for a model, in order.
func (s *Set) Specs() []llm.ToolSpec {
	var specs []llm.ToolSpec
	for _, t := range s.Tools() {
		specs = append(specs, t.Spec())
	}
	return specs
}
