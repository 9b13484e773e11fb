package grpcfailure

import (
	"google.golang.org/grpc/codes"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// codeByMode maps every failure mode to its gRPC code (contract OC-24, appendix B).
var codeByMode = map[failure.Mode]codes.Code{
	failure.Unknown: codes.Internal,

	failure.AgentValidation:     codes.FailedPrecondition,
	failure.AgentTimeout:        codes.DeadlineExceeded,
	failure.AgentLogic:          codes.Internal,
	failure.AgentContract:       codes.Internal,
	failure.AgentState:          codes.FailedPrecondition,
	failure.SystemNetwork:       codes.Unavailable,
	failure.SystemTimeout:       codes.DeadlineExceeded,
	failure.SystemCrash:         codes.Internal,
	failure.SystemOOM:           codes.ResourceExhausted,
	failure.SystemDisk:          codes.ResourceExhausted,
	failure.ResourceTool:        codes.Unavailable,
	failure.ResourceAPI:         codes.Unavailable,
	failure.ResourceMemory:      codes.ResourceExhausted,
	failure.ResourceQuota:       codes.ResourceExhausted,
	failure.ResourceCircuit:     codes.Unavailable,
	failure.PolicySecurity:      codes.PermissionDenied,
	failure.PolicyBudget:        codes.ResourceExhausted,
	failure.PolicyAllowlist:     codes.PermissionDenied,
	failure.PolicyRateLimit:     codes.ResourceExhausted,
	failure.UserInvalidInput:    codes.InvalidArgument,
	failure.UserCancelled:       codes.Canceled,
	failure.UserPermission:      codes.PermissionDenied,
	failure.UserUnauthenticated: codes.Unauthenticated,
	failure.PartialToolFailures: codes.Internal,
	failure.PartialStepFailures: codes.Internal,
	failure.PartialTimeout:      codes.DeadlineExceeded,

	failure.NotFound:         codes.NotFound,
	failure.KeyReused:        codes.AlreadyExists,
	failure.SessionBusy:      codes.Aborted,
	failure.SessionFull:      codes.ResourceExhausted,
	failure.Fenced:           codes.Aborted,
	failure.TurnNotOpen:      codes.FailedPrecondition,
	failure.BaseMismatch:     codes.Aborted,
	failure.StateViolation:   codes.PermissionDenied,
	failure.NoWorker:         codes.Unavailable,
	failure.InstanceFull:     codes.ResourceExhausted,
	failure.InstancePaused:   codes.Unavailable,
	failure.InstanceDraining: codes.Unavailable,
	failure.TraceOrphaned:    codes.Unavailable,

	failure.Nondeterminism:    codes.Internal,
	failure.UnknownOutcome:    codes.Unknown,
	failure.SessionClosed:     codes.FailedPrecondition,
	failure.SessionDeleted:    codes.FailedPrecondition,
	failure.RevisionMismatch:  codes.Aborted,
	failure.SlowConsumer:      codes.ResourceExhausted,
	failure.AttemptsExhausted: codes.Internal,
	failure.Overloaded:        codes.ResourceExhausted,
}

// fallbackMessages are the messages for statuses that carry no Failure detail. They replace gRPC's own text,
// because that text contains addresses, which belong only in the log.
var fallbackMessages = map[failure.Mode]string{
	failure.Unknown:          "the call failed; the log has the cause",
	failure.UserCancelled:    "the call was cancelled",
	failure.SystemTimeout:    "there was no answer in time; the call may have taken effect",
	failure.SystemNetwork:    "the service cannot be reached, or disconnected; the call may have taken effect",
	failure.UserInvalidInput: "the request cannot be read, or is out of range",
	failure.NotFound:         "what the request names does not exist",
	failure.KeyReused:        "it exists already",
	failure.UserPermission:   "the caller may not do this",

	failure.UserUnauthenticated: "the caller is not authenticated; it must send a token or present a certificate",

	failure.ResourceQuota: "the message is too large, or a limit is reached",
	failure.AgentState:    "the service cannot do this in its present state",
	failure.AgentContract: "the service does not know this call; it may be of another version",
}

// modeFromCode returns the nearest failure mode for the gRPC code of a status without a Failure detail.
func modeFromCode(c codes.Code) failure.Mode {
	switch c {
	case codes.Canceled:
		return failure.UserCancelled
	case codes.DeadlineExceeded:
		return failure.SystemTimeout
	case codes.Unavailable:
		return failure.SystemNetwork
	case codes.InvalidArgument, codes.OutOfRange:
		return failure.UserInvalidInput
	case codes.NotFound:
		return failure.NotFound
	case codes.AlreadyExists:
		return failure.KeyReused
	case codes.PermissionDenied:
		return failure.UserPermission
	case codes.Unauthenticated:
		return failure.UserUnauthenticated
	case codes.ResourceExhausted:
		return failure.ResourceQuota
	case codes.FailedPrecondition:
		return failure.AgentState
	case codes.Unimplemented:
		return failure.AgentContract
	default:
		return failure.Unknown
	}
}
