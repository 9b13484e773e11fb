package registry

import (
	"fmt"
	"regexp"
	"slices"
)

// MaxCapabilities is the largest number of capabilities of an instance, and of those that a step needs.
const MaxCapabilities = 16

var capability = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// IsCapability reports whether a word is a valid capability: 1 to 63 of a-z, 0-9, dot and hyphen, with a letter
// or digit at both ends.
func IsCapability(word string) bool { return capability.MatchString(word) }

// Capabilities merges lists of capabilities, sorted and without duplicates. Its error names the first fault in
// one sentence.
func Capabilities(lists ...[]string) ([]string, error) {
	all := slices.Concat(lists...)
	slices.Sort(all)
	all = slices.Compact(all)
	if i := slices.IndexFunc(all, func(word string) bool { return !IsCapability(word) }); i >= 0 {
		return nil, fmt.Errorf("%q is no capability; want 1 to 63 of a-z, 0-9, dot and hyphen", all[i])
	}
	if len(all) > MaxCapabilities {
		return nil, fmt.Errorf("%d capabilities are named; at most %d may be", len(all), MaxCapabilities)
	}
	return all, nil
}
