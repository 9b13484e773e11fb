// Package wire converts the Go values that the SDK computes with into their protobuf messages and back:
// conversations, steps, results, journals, events and budgets. The packages below it convert the values of
// the memory service (memorywire) and of the registry (instancewire).
//
// XToProto and XFromProto are inverses for every value that the mesh stores or sends. A zero time is an absent
// timestamp. A value that an enum does not know becomes UNSPECIFIED.
package wire

import (
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// FailureToProto converts the failure of a result or a turn (nil for nil). Unlike grpcfailure.ToProto it takes a
// *failure.Error, so that a nil pointer does not become a non-nil error.
func FailureToProto(e *failure.Error) *troupev1.Failure {
	if e == nil {
		return nil
	}
	return grpcfailure.ToProto(e)
}
