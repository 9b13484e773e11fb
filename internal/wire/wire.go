// Package wire turns the Go values of the mesh into their protobuf messages and back. It
// is the only bridge between the two, so that a new field has one place to go.
//
// XToProto and XFromProto are inverses for every value that the mesh stores or sends. A
// zero time is an absent timestamp, and a value that an enum does not know is its
// UNSPECIFIED. Requests carry no tenant: whoever reads one names it.
package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// enum is the table between the values of a Go string type and of a protobuf enum.
type enum[G ~string, P ~int32] map[G]P

func (e enum[G, P]) toProto(g G) P { return e[g] }

func (e enum[G, P]) fromProto(p P) G {
	for g, candidate := range e {
		if candidate == p {
			return g
		}
	}
	return ""
}

// each turns every element; nil stays nil.
func each[A, B any](in []A, turn func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = turn(a)
	}
	return out
}

func timeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func timeFromProto(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// failureToProto keeps a nil *Error from becoming an error that is not nil.
func failureToProto(e *failure.Error) *troupev1.Failure {
	if e == nil {
		return nil
	}
	return grpcfailure.ToProto(e)
}
