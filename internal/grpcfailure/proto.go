package grpcfailure

import (
	"errors"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// ToProto converts an error to the message that is stored and sent. Texts and facts are cut to the limits of
// failure.proto. The cause of a failure.Error is left out, and so is the text of any other error, because both are
// only for the log. A nil error yields nil.
func ToProto(err error) *troupev1.Failure {
	if e, ok := errors.AsType[*failure.Error](err); err == nil || ok && e == nil {
		return nil // an error interface that holds a nil *Error also counts as nil
	}
	e := failure.FromError(err)
	return &troupev1.Failure{Mode: modeToProto(e.Mode), Op: cutText(e.Op, maxOpBytes), Message: cutText(e.Message, maxMessageBytes), Facts: cutFacts(e.Facts)}
}

// FromProto converts a message back to a failure.Error without a cause. Nil yields nil.
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
