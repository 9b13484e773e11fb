// Package convert has the parts that all conversions between Go values and protobuf messages share.
package convert

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// Enum is the table between the values of a Go string type and a protobuf enum.
type Enum[G ~string, P ~int32] map[G]P

// ToProto returns the protobuf value of g (UNSPECIFIED when the table lacks it).
func (e Enum[G, P]) ToProto(g G) P { return e[g] }

// FromProto returns the Go value of p (empty when the table lacks it).
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

// TimeToProto returns t as a timestamp (nil for the zero time).
func TimeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// TimeFromProto returns the time of a timestamp (zero for nil).
func TimeFromProto(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
