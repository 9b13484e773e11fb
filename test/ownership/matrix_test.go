package ownership_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/ownership"
	"github.com/troupe-dev/troupe/test/redistest"
	"github.com/troupe-dev/troupe/test/rig"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"), // started by the Gemini SDK
	)
}

// access performs the operation of a cell. It returns the error of the rejection (nil if the access was allowed).
type access func(t *testing.T, m *mesh) error

// trial is a forbidden access. tryForbidden makes it where one layer must reject it. tryUnguarded makes the same
// access without that layer and must succeed, which proves that this layer caused the rejection.
type trial struct{ tryForbidden, tryUnguarded access }

// rejectionModes lists the failure modes of a rejected access. A session of another user looks like one that does
// not exist.
var rejectionModes = []failure.Mode{
	failure.StateViolation, failure.PolicySecurity, failure.Fenced, failure.UserUnauthenticated, failure.UserPermission, failure.NotFound,
}

// In a complete mesh, every allowed cell of the matrix works. Every forbidden cell that an agent can try in
// its turn is rejected, leaves an OwnershipViolation on the trace, and changes nothing.
//
// Req: SO-8
func TestMatrix_IsEnforcedByTheMesh(t *testing.T) {
	m := newMesh(t, rig.Config{})
	tried := map[ownership.Cell]bool{}
	for _, cells := range []map[ownership.Cell][]access{turnAccesses, allowedAccesses} {
		for cell, tries := range cells {
			may, known := ownership.Matrix[cell]
			require.True(t, known, "%v is not in the matrix", cell)
			tried[cell] = true
			for n, try := range tries {
				before := m.ownedState(t)
				err := try(t, m)
				if may {
					require.NoError(t, err, "%v, try %d", cell, n)
					continue
				}
				require.True(t, failure.Is(err, failure.StateViolation), "%v, try %d: %v", cell, n, err)
				require.Equal(t, withoutTurnRecords(before), withoutTurnRecords(m.ownedState(t)), "%v, try %d", cell, n)
			}
		}
	}
	for cell, may := range ownership.Matrix {
		require.True(t, !may || tried[cell], "no trial covers %v", cell)
	}
}

// Each layer rejects every forbidden cell that reaches it, even without the other layers, and nothing changes.
// The layers are the SDK over a store that accepts everything, the services over stores that accept
// everything, the users of Redis, and the users of etcd. Without the layer, the same access succeeds.
//
// Req: SO-8
func TestMatrix_IsEnforcedByEachLayerAlone(t *testing.T) {
	whole := newMesh(t, rig.Config{})
	whole.unguardedRedis, whole.unguardedEtcd = redistest.StartUnguarded(t), etcdtest.Start(t)
	layers := map[ownership.Layer]struct {
		mesh   *mesh
		trials map[ownership.Cell][]trial
	}{
		ownership.SDK:      {whole, sdkTrials}, // which it does not touch
		ownership.Services: {newMesh(t, rig.Config{OpenStores: true, RequireTokens: true}), serviceTrials},
		ownership.Redis:    {whole, redisTrials},
		ownership.Etcd:     {whole, etcdTrials},
	}
	for name, layer := range layers {
		t.Run(string(name), func(t *testing.T) {
			for cell, trials := range layer.trials {
				may, known := ownership.Matrix[cell]
				require.True(t, known && !may, "%v is not forbidden", cell)
				for n, trial := range trials {
					before := layer.mesh.ownedState(t)
					err := trial.tryForbidden(t, layer.mesh)
					require.True(t, failure.Is(err, rejectionModes...), "%v, try %d: %v", cell, n, err)
					require.Equal(t, before, layer.mesh.ownedState(t), "%v, try %d", cell, n)
					require.NoError(t, trial.tryUnguarded(t, layer.mesh), "%v, try %d, without the layer", cell, n)
				}
			}
		})
	}
	for cell, may := range ownership.Matrix {
		besides := 0
		for name, layer := range layers {
			_, untried := ownership.UntriedReasons[name][cell]
			require.Equal(t, !may && !untried, len(layer.trials[cell]) > 0, "%v at %s: try it, or say why not", cell, name)
			if name != ownership.SDK && len(layer.trials[cell]) > 0 {
				besides++
			}
		}
		require.True(t, may || besides > 0, "only the SDK rejects %v", cell)
	}
}

// runAction requests an action of the owner agent as a user, and returns the action's error. It checks that a
// rejection is recorded on the trace.
func runAction(t *testing.T, m *mesh, deed string) error {
	t.Helper()
	return runActionIn(t, m, sessionID, deed)
}

func runActionIn(t *testing.T, m *mesh, where, deed string) error {
	t.Helper()
	var said string
	var trespasses []*troupev1.OwnershipViolation
	for e, err := range m.Turn(t.Context(), &troupev1.OrchestrateRequest{
		Input: &troupev1.OrchestrateRequest_Text{Text: deed}, SessionId: where, Target: ownerAgent,
	}) {
		require.NoError(t, err)
		if v := e.GetOwnershipViolation(); v != nil {
			require.Positive(t, e.GetSequence(), "it is on the trace")
			trespasses = append(trespasses, v)
		}
		if r := e.GetTurnResult(); r != nil {
			require.Nil(t, r.GetFailure(), "%v", r)
			said = r.GetText()
		}
	}
	if said == "ok" {
		require.Empty(t, trespasses)
		return nil
	}
	require.Equal(t, string(failure.StateViolation), said, deed)
	require.Len(t, trespasses, 1, deed)
	require.Equal(t, ownerAgent, trespasses[0].GetActor())
	return failure.New(failure.Mode(said), "test", said).WithOwner(trespasses[0].GetKey(), trespasses[0].GetOwner(), trespasses[0].GetActor())
}

// requireRejected requires that every call was rejected and returns the last error.
func requireRejected(t *testing.T, errs ...error) (last error) {
	t.Helper()
	for i, err := range errs {
		require.Error(t, err, "call %d", i)
		last = grpcfailure.FromStatus("test", err)
		require.True(t, failure.Is(last, rejectionModes...), "call %d: %v", i, last)
	}
	return last
}

// firstError returns the first error (nil if there is none).
func firstError(errs ...error) error {
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return grpcfailure.FromStatus("test", errs[i])
}

// errorOnly drops the response of a call and returns its error.
func errorOnly[R any](_ R, err error) error { return err }
