package registry

import (
	"fmt"
	"regexp"
	"slices"
)

// MaxCapabilities limits the capabilities that an instance has, and the ones that a step may require.
const MaxCapabilities = 16

var capabilityPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// IsCapability reports whether word is a valid capability: 1 to 63 characters of a-z, 0-9, dot and hyphen, with a
// letter or digit at both ends.
func IsCapability(word string) bool { return capabilityPattern.MatchString(word) }

// MergeCapabilities merges lists of capabilities into one list, sorted and without duplicates. It returns an error
// for an invalid capability and for too many.
func MergeCapabilities(lists ...[]string) ([]string, error) {
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
