package registry

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// These are the limits of a registration. A worker writes its own registration, and etcd does not validate it. So
// each reader checks the limits and ignores a registration that exceeds one (guarantee S9).
const (
	MaxCapacity  = 10_000 // concurrent steps
	MaxTextBytes = 1024   // bytes of an address, a version or a description
	MaxTools     = 512
)

var (
	agentNamePattern  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	instanceIDPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?$`)
)

// IsAgentName reports whether word is a valid agent name: 1 to 63 characters of a-z, 0-9 and hyphen, without a
// hyphen at either end.
func IsAgentName(word string) bool { return agentNamePattern.MatchString(word) }

// CheckID returns an error for an invalid instance id. The rule is strict, because ids become parts of keys and
// people type them.
func CheckID(id string) error {
	if !instanceIDPattern.MatchString(id) {
		return fmt.Errorf("%q is no id of an instance; want 1 to 128 of A-Z a-z 0-9 _ . -, and a letter or digit at both ends", id)
	}
	return nil
}

// Check returns an error for the first invalid field of a registration.
func (in Instance) Check() error {
	switch {
	case !IsAgentName(in.Agent):
		return fmt.Errorf("%q names no agent; want 1 to 63 of a-z, 0-9 and hyphens, none of these at the ends", in.Agent)
	case CheckID(in.ID) != nil:
		return CheckID(in.ID)
	case in.Capacity < 1 || in.Capacity > MaxCapacity:
		return fmt.Errorf("the capacity is %d; it must be 1 to %d", in.Capacity, MaxCapacity)
	case len(in.Tools) > MaxTools:
		return fmt.Errorf("there are %d tools; at most %d may be", len(in.Tools), MaxTools)
	}
	if !IsAddress(in.Address) {
		return fmt.Errorf("%.40q is no address; want host:port", in.Address)
	}
	for field, text := range map[string]string{"address": in.Address, "version": in.Version, "description": in.Description} {
		if len(text) > MaxTextBytes || !utf8.ValidString(text) {
			return fmt.Errorf("the %s has %d bytes; it must be UTF-8 of at most %d", field, len(text), MaxTextBytes)
		}
	}
	if _, err := MergeCapabilities(in.Capabilities); err != nil {
		return err
	}
	for _, t := range in.Tools {
		if t.Name == "" || len(t.Name) > MaxTextBytes {
			return fmt.Errorf("a tool has a name of %d bytes; want 1 to %d", len(t.Name), MaxTextBytes)
		}
		if _, err := MergeCapabilities(t.Capabilities); err != nil {
			return fmt.Errorf("tool %q: %w", t.Name, err)
		}
	}
	return nil
}

// IsAddress reports whether address is host:port with a numeric port.
func IsAddress(address string) bool {
	host, port, err := net.SplitHostPort(address)
	n, wrong := strconv.ParseUint(port, 10, 16)
	return err == nil && wrong == nil && host != "" && n > 0
}
