package main

import (
	"fmt"
	"maps"
	"slices"
)

// labels is part of commands whose turns say how they shall be handled.
type labels struct {
	Profile  string            `help:"How the turn shall be handled, for its agents and tools. Empty: default." placeholder:"NAME"`
	Need     []string          `help:"What whoever is chosen for the turn shall be able to do, such as legal. May be repeated." placeholder:"WORD"`
	Metadata map[string]string `help:"A label for agents and tools. It is stored with the trace: no place for secrets. May be repeated." placeholder:"NAME=VALUE" mapsep:"none"`
	Priority *int32            `help:"Where its steps stand in the line for a place, 0 to 10; higher ones first. Empty: 5." placeholder:"N"`
	Tag      []string          `help:"A word for agents and tools. May be repeated." placeholder:"WORD" sep:"none"`
}

// again is what a command has to say to send the same labels.
func (l labels) again() (flags string) {
	if l.Profile != "" {
		flags += " --profile " + word(l.Profile)
	}
	for _, need := range l.Need {
		flags += " --need " + word(need)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Metadata)) {
		flags += " --metadata " + word(name+"="+l.Metadata[name])
	}
	if l.Priority != nil {
		flags += fmt.Sprintf(" --priority %d", *l.Priority)
	}
	for _, tag := range l.Tag {
		flags += " --tag " + word(tag)
	}
	return flags
}
