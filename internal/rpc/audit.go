package rpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/authz"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// auditInterceptor records audited calls with their caller and their result (S19). All of them are unary. Calls that
// work on the process itself name no object; the object is then the serving instance, which belongs to no tenant.
func auditInterceptor(log *audit.Log, instance string) interceptor {
	return interceptor{
		name: "audited",
		unary: func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
			kind, ok := authz.Audited(info.FullMethod)
			if !ok {
				return next(ctx, req)
			}
			err = errPanicked
			defer func() {
				caller := identity.PrincipalOf(ctx)
				e := audit.Entry{Kind: kind, Actor: caller.String(), Action: info.FullMethod, Result: outcome(err), Facts: map[string]string{"tenant": caller.Tenant}}
				e.Object = objectOf(req, e.Facts)
				if kind == audit.Lifecycle {
					delete(e.Facts, "tenant")
					e.Object = instance
				}
				log.Record(e)
			}()
			var resp any
			resp, err = next(ctx, req)
			return resp, err
		},
		stream: func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, ss)
		},
	}
}

// errPanicked is the result of a handler that did not return.
var errPanicked = errors.New("it panicked")

// outcome returns the mode of an error as text, or "ok".
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	if mode := failure.ModeOf(err); mode != failure.Unknown {
		return string(mode)
	}
	return "failed"
}

// objectFields lists the fields that identify the object of a request. The first field that is set is the object,
// the others are facts. A reason comes from an operator and never from a user.
var objectFields = []protoreflect.Name{"instance_id", "agent", "session_id", "trace_id", "user_id", "reason"}

// objectOf returns the object of a request, and adds the other fields to facts.
func objectOf(req any, facts map[string]string) (object string) {
	m, ok := req.(proto.Message)
	if !ok {
		return ""
	}
	r := m.ProtoReflect()
	for _, name := range objectFields {
		field := r.Descriptor().Fields().ByName(name)
		if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() || !r.Has(field) {
			continue
		}
		if value := r.Get(field).String(); object == "" && name != "reason" {
			object = value
		} else {
			facts[string(name)] = value
		}
	}
	return object
}
