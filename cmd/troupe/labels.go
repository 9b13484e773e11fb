package main

import (
	"maps"
	"slices"
)

// labels is part of commands whose turns say how they shall be handled.
type labels struct {
	Profile  string            `help:"How the turn shall be handled, for its agents and tools. Empty: default." placeholder:"NAME"`
	Need     []string          `help:"What whoever is chosen for the turn shall be able to do, such as legal. May be repeated." placeholder:"WORD"`
	Metadata map[string]string `help:"A label for agents and tools. It is stored with the trace: no place for secrets. May be repeated." placeholder:"NAME=VALUE" mapsep:"none"`
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
	return flags
}
