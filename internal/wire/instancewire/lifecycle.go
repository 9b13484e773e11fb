package instancewire

import (
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/wire/convert"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

var leaseStates = convert.Enum[lifecycle.Lease, troupev1.LeaseState]{
	lifecycle.LeaseNone:    troupev1.LeaseState_LEASE_STATE_UNSPECIFIED,
	lifecycle.LeaseOK:      troupev1.LeaseState_LEASE_STATE_OK,
	lifecycle.LeaseUnknown: troupev1.LeaseState_LEASE_STATE_UNKNOWN,
	lifecycle.LeaseExpired: troupev1.LeaseState_LEASE_STATE_EXPIRED,
}

var keyOwners = convert.Enum[ownership.Owner, troupev1.Owner]{
	ownership.Agent:        troupev1.Owner_OWNER_AGENT,
	ownership.Memory:       troupev1.Owner_OWNER_MEMORY,
	ownership.Orchestrator: troupev1.Owner_OWNER_ORCHESTRATOR,
	ownership.Shared:       troupev1.Owner_OWNER_SHARED,
}

// StatusToProto converts the status of an instance. The caller adds the name of the instance.
func StatusToProto(s lifecycle.Status) *troupev1.InstanceStatus {
	return &troupev1.InstanceStatus{
		State:        StateToProto(s.State),
		StateVersion: s.Version,
		InFlight:     int32(s.InFlight),
		Capacity:     int32(s.Capacity),
		Pausing:      s.Pausing,
		Since:        timestamppb.New(s.Since),
		Reason:       s.Reason,
		Lease:        leaseStates.ToProto(s.Lease),
		Draining:     s.Draining,
	}
}

// TransitionToProto converts one state transition.
func TransitionToProto(t lifecycle.Transition) *troupev1.Transition {
	return &troupev1.Transition{
		From: StateToProto(t.From), To: StateToProto(t.To), Version: t.Version,
		Time: timestamppb.New(t.Time), Reason: t.Reason, TraceId: t.TraceID,
	}
}

// MetricsToProto converts the counters of an instance.
func MetricsToProto(m lifecycle.Metrics) *troupev1.GetMetricsResponse {
	return &troupev1.GetMetricsResponse{
		StartupTime:      durationpb.New(m.StartupTime),
		ShutdownTime:     durationpb.New(m.ShutdownTime),
		ActiveTime:       durationpb.New(m.ActiveTime),
		TotalRequests:    m.TotalRequests,
		FailedRequests:   m.FailedRequests,
		StateTransitions: m.StateTransitions,
	}
}

// OwnerToProto converts the tier that owns a key.
func OwnerToProto(o ownership.Owner) troupev1.Owner { return keyOwners.ToProto(o) }
