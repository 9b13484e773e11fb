package failure

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Domain is that of the google.rpc.ErrorInfo on every error of the mesh.
const Domain = "troupe.dev"

// classify finds the Error in err's chain, or makes one that tells nothing.
func classify(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		return New(UserCancelled, "call", "the call was cancelled").Because(err)
	case errors.Is(err, context.DeadlineExceeded):
		return New(SystemTimeout, "call", "the deadline passed; what was asked for may have happened").Because(err)
	}
	return New(Unknown, "call", "internal error; the server's log has the cause").Because(err)
}

// ToStatus turns the error of a handler into the status that a server sends. A status
// that grpc itself made passes through.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*Error](err); !ours {
		if _, ok := status.FromError(err); ok {
			return err
		}
	}
	e := classify(err)
	told := ToProto(e)
	st := status.New(table[e.Mode].code, told.GetMessage())
	details := []protoadapt.MessageV1{
		&errdetails.ErrorInfo{Reason: e.Mode.Reason(), Domain: Domain, Metadata: told.GetFacts()},
		told,
	}
	if after, ok := RetryAfter(e); ok { // for clients that know nothing of us
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	}
	if v := violation(e); v != nil {
		details = append(details, v)
	}
	detailed, detailErr := st.WithDetails(details...)
	if detailErr != nil {
		return st.Err()
	}
	return detailed.Err()
}

// FromStatus rebuilds, on the client, the Error that the server returned. A status that
// has none, because a proxy or grpc itself made it, gets the nearest mode. Errors that
// are no status are returned as they are.
func FromStatus(op string, err error) error {
	st, ok := status.FromError(err)
	if !ok || st.Code() == codes.OK {
		return err
	}
	for _, d := range st.Details() {
		if f, ok := d.(*troupev1.Failure); ok {
			return FromProto(f)
		}
	}
	for _, d := range st.Details() { // of a server that tells nothing else
		if v, ok := d.(*troupev1.StateViolation); ok {
			return New(StateViolation, op, st.Message()).Owned(v.GetKey(), v.GetOwner(), v.GetActor())
		}
	}
	mode := modeOfCode(st.Code())
	return New(mode, op, foreign[mode]).Because(err)
}

// foreign are the messages of statuses without our detail: what grpc itself says names
// addresses, which are for the log.
var foreign = map[Mode]string{
	Unknown:          "the call failed; the log has the cause",
	UserCancelled:    "the call was cancelled",
	SystemTimeout:    "there was no answer in time; what was asked for may have happened",
	SystemNetwork:    "the service cannot be reached, or went away; what was asked for may have happened",
	UserInvalidInput: "the request cannot be read, or is out of range",
	NotFound:         "what the request names does not exist",
	KeyReused:        "it exists already",
	UserPermission:   "the caller may not do this",

	UserUnauthenticated: "nobody knows who the caller is; it has to show a token, or a certificate",

	ResourceQuota: "the message is larger than may be, or a limit is reached",
	AgentState:    "the service cannot do this in its present state",
	AgentContract: "the service does not know this call; it may be of another version",
}

// modeOfCode is for statuses without our detail.
func modeOfCode(c codes.Code) Mode {
	switch c {
	case codes.Canceled:
		return UserCancelled
	case codes.DeadlineExceeded:
		return SystemTimeout
	case codes.Unavailable:
		return SystemNetwork
	case codes.InvalidArgument, codes.OutOfRange:
		return UserInvalidInput
	case codes.NotFound:
		return NotFound
	case codes.AlreadyExists:
		return KeyReused
	case codes.PermissionDenied:
		return UserPermission
	case codes.Unauthenticated:
		return UserUnauthenticated
	case codes.ResourceExhausted:
		return ResourceQuota
	case codes.FailedPrecondition:
		return AgentState
	case codes.Unimplemented:
		return AgentContract
	default:
		return Unknown
	}
}
