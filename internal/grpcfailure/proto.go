package grpcfailure

import (
	"errors"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// ToProto returns err as it is stored and sent, within the rules of failure.proto: longer texts and
// facts are cut. It leaves out the cause of an Error, and everything of an error that is not one; the
// log has both. A nil error gives nil.
func ToProto(err error) *troupev1.Failure {
	if e, ok := errors.AsType[*failure.Error](err); err == nil || ok && e == nil {
		return nil // an error that holds a nil *Error counts as nil, too
	}
	e := failure.FromError(err)
	return &troupev1.Failure{Mode: modeToProto(e.Mode), Op: cutText(e.Op, maxOp), Message: cutText(e.Message, maxMessage), Facts: cutFacts(e.Facts)}
}

// FromProto is the inverse of ToProto. The cause is lost. Nil gives nil.
func FromProto(f *troupev1.Failure) *failure.Error {
	if f == nil {
		return nil
	}
	return &failure.Error{Mode: modeFromProto(f.GetMode()), Op: f.GetOp(), Message: f.GetMessage(), Facts: f.GetFacts()}
}

const modePrefix = "FAILURE_MODE_"

func modeToProto(m failure.Mode) troupev1.FailureMode {
	return troupev1.FailureMode(troupev1.FailureMode_value[modePrefix+m.Reason()])
}

func modeFromProto(m troupev1.FailureMode) failure.Mode {
	if m == troupev1.FailureMode_FAILURE_MODE_UNSPECIFIED {
		return failure.Unknown
	}
	return failure.Mode(strings.ToLower(strings.TrimPrefix(m.String(), modePrefix)))
}
