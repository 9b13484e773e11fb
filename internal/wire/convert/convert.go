// Package convert holds the helpers that all conversions between Go values and protobuf messages share.
package convert

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// Enum maps the values of a Go string type to the values of a protobuf enum.
type Enum[G ~string, P ~int32] map[G]P

// ToProto returns the protobuf value of g (UNSPECIFIED if the map does not contain g).
func (e Enum[G, P]) ToProto(g G) P { return e[g] }

// FromProto returns the Go value of p (empty if the map does not contain p).
func (e Enum[G, P]) FromProto(p P) G {
	for g, candidate := range e {
		if candidate == p {
			return g
		}
	}
	return ""
}

// All converts every element. A nil slice stays nil.
func All[A, B any](in []A, convert func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = convert(a)
	}
	return out
}

// TimeToProto converts a time to a timestamp (nil for the zero time).
func TimeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// TimeFromProto converts a timestamp to a time (the zero time for nil).
func TimeFromProto(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
