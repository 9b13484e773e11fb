package lifecycle

import (
	"context"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/failure"
)

type expectedVersionKey struct{}

// ContextIfVersion returns a context for one verb. The verb fails with agent_state and changes nothing unless the status has
// this version when it begins. So a caller that has read a status acts on no other one.
func ContextIfVersion(ctx context.Context, version uint64) context.Context {
	return context.WithValue(ctx, expectedVersionKey{}, version)
}

// checkVersion returns an error if ctx expects another version. The caller must hold the lock.
func (i *Instance) checkVersion(ctx context.Context, verb string) error {
	expected, ok := ctx.Value(expectedVersionKey{}).(uint64)
	if !ok || expected == i.record.Version {
		return nil
	}
	return failure.Newf(failure.AgentState, "lifecycle."+verb,
		"if_state_version is %d, and the instance is %s with state_version %d; read its state and decide again", expected, i.record.State, i.record.Version).
		With("actual_state", string(i.record.State)).With("state_version", strconv.FormatUint(i.record.Version, 10))
}
