package rpc

import (
	"context"
	"errors"
	"strings"

	"buf.build/go/protovalidate"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// validationInterceptor validates each request by the rules in the .proto before the handler runs.
func validationInterceptor(v protovalidate.Validator) interceptor {
	return interceptor{
		name: "validation",
		unary: func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := validateMessage(v, req); err != nil {
				return nil, err
			}
			return next(ctx, req)
		},
		stream: func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, &validatedStream{ss, v})
		},
	}
}

type validatedStream struct {
	grpc.ServerStream
	validator protovalidate.Validator
}

func (s *validatedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return validateMessage(s.validator, m)
}

// Validate checks a message from another process by the rules in the .proto, as every server does with requests.
func Validate(m proto.Message) error { return validateMessage(protovalidate.GlobalValidator, m) }

// validateMessage returns an error that names every field that breaks a rule, with the rule.
func validateMessage(v protovalidate.Validator, req any) error {
	msg, ok := req.(proto.Message)
	if !ok {
		return nil
	}
	err := v.Validate(msg)
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok {
		return err
	}
	var lines, fields []string
	for _, violation := range invalid.Violations {
		field := protovalidate.FieldPathString(violation.Proto.GetField())
		fields = append(fields, field)
		lines = append(lines, strings.TrimPrefix(field+": "+violation.Proto.GetMessage(), ": "))
	}
	return failure.New(failure.UserInvalidInput, string(msg.ProtoReflect().Descriptor().Name()), strings.Join(lines, "; ")).
		With("fields", strings.Join(fields, ","))
}
