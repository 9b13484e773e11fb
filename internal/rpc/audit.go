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

// auditInterceptor records audited calls with their caller and their result (guarantee S19). All audited calls are unary.
// The object of a call on the process itself is the serving instance, which belongs to no tenant.
func auditInterceptor(log *audit.Log, instance string) interceptor {
	return interceptor{
		name: "audit",
		unary: func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
			kind, ok := authz.AuditKind(info.FullMethod)
			if !ok {
				return next(ctx, req)
			}
			err = errPanicked
			defer func() {
				caller := identity.PrincipalFromContext(ctx)
				e := audit.Entry{
					Kind: kind, Actor: caller.String(), Action: info.FullMethod, Result: resultText(err),
					Facts: map[string]string{"tenant": caller.Tenant},
				}
				e.Object = objectFromRequest(req, e.Facts)
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

// errPanicked is recorded as the result of a handler that panicked.
var errPanicked = errors.New("the handler panicked")

// resultText returns the failure mode of err as text, or "ok" if err is nil.
func resultText(err error) string {
	if err == nil {
		return "ok"
	}
	if mode := failure.ModeOf(err); mode != failure.Unknown {
		return string(mode)
	}
	return "failed"
}

// objectFields lists the fields that identify the object of a request. The first one that is set is the object,
// and the others become facts. Only operators may set the field reason.
var objectFields = []protoreflect.Name{"instance_id", "agent", "session_id", "trace_id", "user_id", "reason"}

// objectFromRequest returns the object of a request, and adds the other fields of objectFields that are set to facts.
func objectFromRequest(req any, facts map[string]string) (object string) {
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
