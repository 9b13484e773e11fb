package interact

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// turnOptionFlags holds the flags that tell agents and tools how to handle a turn: profile, capabilities, priority
// and labels.
type turnOptionFlags struct {
	Profile       string            `help:"How agents and tools should handle the turn (empty means default)." placeholder:"NAME"`
	Need          []string          `help:"Capability that agents chosen for the turn must have, such as legal. May be repeated." placeholder:"WORD"`
	Metadata      map[string]string `help:"A label for agents and tools. It is stored: no secrets. May be repeated." placeholder:"NAME=VALUE" mapsep:"none"`
	Priority      *int32            `help:"Priority of its steps in the queue of an instance, 0 to 10; higher ones first (empty means 5)." placeholder:"N"`
	MaxIterations int32             `help:"How often each step may ask its model (0 means the limits of the agents)." default:"0" placeholder:"N"`
	ErrorStrategy string            `help:"What follows a failed step (empty: what the workflow says)." enum:",fail_fast,continue,retry,fallback" default:""`
	Tag           []string          `help:"A word for agents and tools. May be repeated." placeholder:"WORD" sep:"none"`
}

// flagsToRepeat returns the flags that set the same options again.
func (t turnOptionFlags) flagsToRepeat() (flags string) {
	if t.Profile != "" {
		flags += " --profile " + console.QuoteForShell(t.Profile)
	}
	for _, need := range t.Need {
		flags += " --need " + console.QuoteForShell(need)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Metadata)) {
		flags += " --metadata " + console.QuoteForShell(name+"="+t.Metadata[name])
	}
	if t.Priority != nil {
		flags += fmt.Sprintf(" --priority %d", *t.Priority)
	}
	if t.MaxIterations != 0 {
		flags += fmt.Sprintf(" --max-iterations %d", t.MaxIterations)
	}
	if t.ErrorStrategy != "" {
		flags += " --error-strategy " + t.ErrorStrategy
	}
	for _, tag := range t.Tag {
		flags += " --tag " + console.QuoteForShell(tag)
	}
	return flags
}

// errorStrategyToProto converts the value of --error-strategy.
func errorStrategyToProto(name string) troupev1.ErrorStrategy {
	return troupev1.ErrorStrategy(troupev1.ErrorStrategy_value["ERROR_STRATEGY_"+strings.ToUpper(name)]) // 0 for an empty name
}

// errorStrategyFromProto is the inverse of errorStrategyToProto.
func errorStrategyFromProto(s troupev1.ErrorStrategy) string {
	if s == troupev1.ErrorStrategy_ERROR_STRATEGY_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(s.String(), "ERROR_STRATEGY_"))
}
