package interact

import (
	"fmt"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
)

// labelFlags is part of commands whose turns say how they shall be handled.
type labelFlags struct {
	Profile  string            `help:"How the turn shall be handled, for its agents and tools. Empty: default." placeholder:"NAME"`
	Need     []string          `help:"What whoever is chosen for the turn shall be able to do, such as legal. May be repeated." placeholder:"WORD"`
	Metadata map[string]string `help:"A label for agents and tools. It is stored with the trace: no place for secrets. May be repeated." placeholder:"NAME=VALUE" mapsep:"none"`
	Priority *int32            `help:"Where its steps stand in the line for a place, 0 to 10; higher ones first. Empty: 5." placeholder:"N"`
	Tag      []string          `help:"A word for agents and tools. May be repeated." placeholder:"WORD" sep:"none"`
}

// repeat is what a command has to say to send the same labels.
func (l labelFlags) repeat() (flags string) {
	if l.Profile != "" {
		flags += " --profile " + console.ShellWord(l.Profile)
	}
	for _, need := range l.Need {
		flags += " --need " + console.ShellWord(need)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Metadata)) {
		flags += " --metadata " + console.ShellWord(name+"="+l.Metadata[name])
	}
	if l.Priority != nil {
		flags += fmt.Sprintf(" --priority %d", *l.Priority)
	}
	for _, tag := range l.Tag {
		flags += " --tag " + console.ShellWord(tag)
	}
	return flags
}
