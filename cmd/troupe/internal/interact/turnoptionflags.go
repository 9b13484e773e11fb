package interact

import (
	"fmt"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
)

// turnOptionFlags holds the flags that tell agents and tools how to handle a turn: profile, capabilities, priority
// and labels.
type turnOptionFlags struct {
	Profile  string            `help:"How agents and tools should handle the turn (empty means default)." placeholder:"NAME"`
	Need     []string          `help:"Capability that agents chosen for the turn must have, such as legal. May be repeated." placeholder:"WORD"`
	Metadata map[string]string `help:"A label for agents and tools, stored with the trace: no secrets. May be repeated." placeholder:"NAME=VALUE" mapsep:"none"`
	Priority *int32            `help:"Priority of its steps in the queue of an instance, 0 to 10; higher ones first (empty means 5)." placeholder:"N"`
	Tag      []string          `help:"A word for agents and tools. May be repeated." placeholder:"WORD" sep:"none"`
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
	for _, tag := range t.Tag {
		flags += " --tag " + console.QuoteForShell(tag)
	}
	return flags
}
