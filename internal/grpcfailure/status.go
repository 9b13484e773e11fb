// Package grpcfailure converts failures to gRPC statuses and to the message troupe.v1.Failure, and back. It is the
// only package of the mesh that uses gRPC codes.
package grpcfailure

import (
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Domain is the domain in the google.rpc.ErrorInfo of every error that the mesh sends.
const Domain = "troupe.dev"

// ToStatus converts the error of a handler to the status that the server sends. A status from gRPC itself is
// returned unchanged.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*failure.Error](err); !ours {
		if _, ok := status.FromError(err); ok {
			return err
		}
	}
	e := failure.FromError(err)
	sent := ToProto(e)
	st := status.New(codeByMode[e.Mode], sent.GetMessage())
	details := []protoadapt.MessageV1{
		&errdetails.ErrorInfo{Reason: e.Mode.Reason(), Domain: Domain, Metadata: sent.GetFacts()},
		sent,
	}
	if after, ok := failure.RetryAfter(e); ok { // for clients that do not know the Failure detail
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	}
	if v := violationToProto(e); v != nil {
		details = append(details, v)
	}
	detailed, detailErr := st.WithDetails(details...)
	if detailErr != nil {
		return st.Err()
	}
	return detailed.Err()
}

// FromStatus converts a status that a client received back to the failure.Error of the server. A status without a
// Failure detail, from a proxy or from gRPC itself, gets the nearest mode and the given op. An error that is not a
// status is returned unchanged.
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
	for _, d := range st.Details() { // from a server that sends no Failure
		if v, ok := d.(*troupev1.StateViolation); ok {
			return failure.New(failure.StateViolation, op, st.Message()).WithOwner(v.GetKey(), v.GetOwner(), v.GetActor())
		}
	}
	mode := modeFromCode(st.Code())
	return failure.New(mode, op, fallbackMessages[mode]).Because(err)
}

// violationToProto returns the status detail for an ownership violation (nil for all other errors).
func violationToProto(e *failure.Error) *troupev1.StateViolation {
	if !e.IsViolation() {
		return nil
	}
	return &troupev1.StateViolation{Key: e.Facts[failure.FactKey], Owner: e.Facts[failure.FactOwner], Actor: e.Facts[failure.FactActor]}
}
