package app

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/registry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// quarantine holds the set of quarantined agents (guarantee S18). While the registry is unreachable, the set does not
// change. The zero value is an empty set. It is safe for concurrent use.
type quarantine struct {
	quarantinedAgents atomic.Pointer[map[string]registry.DesiredState]
}

// check rejects calls from workers of quarantined agents. These workers may still read configurations and check
// the health of the service. A worker needs both to start, and must be running when the agent is released.
func (q *quarantine) check(p identity.Principal, method string) error {
	known := q.quarantinedAgents.Load()
	if known == nil || p.Role != identity.Worker ||
		method == troupev1.MemoryService_GetConfig_FullMethodName || method == healthpb.Health_Check_FullMethodName {
		return nil
	}
	if d, out := (*known)[p.Name]; out {
		return d.QuarantineError("call")
	}
	return nil
}

// watchDesiredStates returns the component that updates the set from the registry.
func (q *quarantine) watchDesiredStates(desires registry.DesiredStates, log *zap.Logger) process.Part {
	return process.Part{Name: "quarantine", Grace: time.Second, Run: func(ctx context.Context, ready func()) error {
		ready()
		return desires.WatchDesiredStates(ctx, func(all map[registry.Key]registry.DesiredState) {
			now := registry.QuarantinedAgents(all)
			var was []string
			if before := q.quarantinedAgents.Swap(&now); before != nil {
				was = slices.Sorted(maps.Keys(*before))
			}
			switch agents := slices.Sorted(maps.Keys(now)); {
			case slices.Equal(was, agents):
			case len(agents) == 0:
				log.Info("no agent is quarantined any more")
			default:
				log.Warn("agents are quarantined", zap.Strings("agents", agents))
			}
		})
	}}
}
