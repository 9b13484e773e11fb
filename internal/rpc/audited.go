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

// audited records the calls for which somebody has to answer, with who called and what came of
// them (S19). All are unary. Those that work on the process itself name no object: it is the instance
// that serves, which is of no tenant.
func audited(log *audit.Log, instance string) link {
	return link{
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
				e.Object = named(req, e.Facts)
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

// errPanicked is what came of a handler that did not return.
var errPanicked = errors.New("it panicked")

// outcome is the mode of an error in words, and ok for none.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	if mode := failure.ModeOf(err); mode != failure.Unknown {
		return string(mode)
	}
	return "failed"
}

// identifying are the fields of requests that say on what they work, the first that is there
// being the object; the others are facts. A reason is the operator's, and no user said it.
var identifying = []protoreflect.Name{"instance_id", "agent", "session_id", "trace_id", "user_id", "reason"}

// named is on what a request works.
func named(req any, facts map[string]string) (object string) {
	m, ok := req.(proto.Message)
	if !ok {
		return ""
	}
	r := m.ProtoReflect()
	for _, name := range identifying {
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
