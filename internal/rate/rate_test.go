package rate

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

const orchestrate = "/troupe.v1.OrchestratorService/Orchestrate"

func client(tenant, name string) identity.Principal {
	return identity.Principal{Role: identity.Client, Tenant: tenant, Name: name}
}

// Every method that clients can call has a class.
func TestTable_HasAClassForEveryMethod(t *testing.T) {
	served := map[string]bool{}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				method := "/" + string(service.FullName()) + "/" + string(service.Methods().Get(j).Name())
				served[method] = true
				_, listed := classes[method]
				require.NotEqual(t, listed, slices.Contains(internalServices, string(service.FullName())), "%s: say in table.go of which class it is", method)
			}
		}
		return true
	})
	for method, class := range classes {
		require.True(t, served[method], "%s is in a class but no server has it", method)
		require.Contains(t, Defaults(), class)
	}
	require.Equal(t, Operations, classForMethod("/troupe.v1.OrchestratorService/New"), "nothing is without a limit")
	l := New(Table{Operations: {Rate: 0.001, Burst: 1}}) // the table of a client port, which serves no internal methods
	require.NoError(t, l.Admit("/troupe.v1.MemoryService/CommitStep", identity.Principal{Role: identity.Client}))
	require.Error(t, l.Admit("/troupe.v1.MemoryService/CommitStep", identity.Principal{Role: identity.Client}))
}

func TestLimiter_RejectsWithARetryDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Table{Turns: {Rate: 2, Burst: 3}})
		for range 3 {
			require.NoError(t, l.Admit(orchestrate, client("a", "app")))
		}
		err := l.Admit(orchestrate, client("a", "app"))
		require.True(t, failure.Is(err, failure.PolicyRateLimit))
		require.EqualError(t, err, "call: policy_rate_limit: client app of tenant a may make 2 calls of the class turns a second, and 3 at once; "+
			"call again in 500ms, or have an operator raise turns in the file of --rates")
		after, ok := failure.RetryAfter(err)
		require.True(t, ok)

		require.NoError(t, l.Admit(orchestrate, client("b", "app")), "another tenant")
		require.NoError(t, l.Admit(orchestrate, client("a", "other")), "another identity")
		require.NoError(t, l.Admit("/troupe.v1.OrchestratorService/GetTrace", client("a", "app")), "another class, without a limit")

		time.Sleep(after)
		require.NoError(t, l.Admit(orchestrate, client("a", "app")))
		require.Error(t, l.Admit(orchestrate, client("a", "app")), "the rejected call did not count")
	})
}

// All callers of a tenant share the tenant's limit. A call rejected by a caller's own limit does not count against
// the tenant, and the other way round.
func TestLimiter_LimitsAllCallersOfATenantTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Table{Turns: {Rate: 1, Burst: 2}, tenantClass(Turns): {Rate: 2, Burst: 4}})
		admitted := 0
		for range 3 { // the third call is rejected by the caller's own limit
			if l.Admit(orchestrate, client("a", "loud")) == nil {
				admitted++
			}
		}
		require.Equal(t, 2, admitted)
		require.NoError(t, l.Admit(orchestrate, client("a", "1")))
		require.NoError(t, l.Admit(orchestrate, client("a", "2")), "the rejected call of the loud caller did not count")
		err := l.Admit(orchestrate, client("a", "3"))
		require.True(t, failure.Is(err, failure.PolicyRateLimit))
		require.EqualError(t, err, "call: policy_rate_limit: all callers of tenant a together may make 2 calls of the class tenant-turns a second, "+
			"and 4 at once; call again in 500ms, or have an operator raise tenant-turns in the file of --rates")
		require.NoError(t, l.Admit(orchestrate, client("b", "3")), "another tenant")

		time.Sleep(time.Second)
		require.NoError(t, l.Admit(orchestrate, client("a", "3")))
		require.NoError(t, l.Admit(orchestrate, client("a", "3")), "the call rejected by the tenant's limit did not count against the caller's own")
		require.Error(t, l.Admit(orchestrate, client("a", "4")))
	})
	l := New(Table{tenantClass(Turns): {Rate: 0.001, Burst: 1}})
	require.NoError(t, l.Admit(orchestrate, identity.Principal{Role: identity.Anybody, Name: "192.0.2.1", Tenant: identity.DefaultTenant}))
	require.Error(t, l.Admit(orchestrate, identity.Principal{Role: identity.Admin, Name: "ann"}),
		"an empty tenant means the default tenant, and a tenant limit applies without a caller limit")
}

// Inside the mesh only calls of workers are limited, because a worker may be compromised. Calls of orchestrators
// are not.
func TestLimiter_LimitsWorkersInsideTheMesh(t *testing.T) {
	const commit = "/troupe.v1.MemoryService/CommitStep"
	l := New(Table{Mesh: {Rate: 0.001, Burst: 2}})
	worker := func(name string) identity.Principal {
		return identity.Principal{Role: identity.Worker, Name: name, Tenant: "a"}
	}
	require.NoError(t, l.Admit(commit, worker("evil")))
	require.NoError(t, l.Admit(commit, worker("evil")))
	require.True(t, failure.Is(l.Admit(commit, worker("evil")), failure.PolicyRateLimit))
	require.NoError(t, l.Admit(commit, worker("good")))
	for range 100 {
		require.NoError(t, l.Admit(commit, identity.Principal{Role: identity.Orchestrator, Tenant: "a"}))
	}
}

func TestLimiter_LimitsCallsFromAnAddress(t *testing.T) {
	l := New(Table{Streams: {Rate: 0.001, Burst: 2}})
	from := &net.TCPAddr{IP: net.ParseIP("192.0.2.1")}
	require.NoError(t, l.CountCall(from))
	require.NoError(t, l.CountCall(from))
	require.True(t, failure.Is(l.CountCall(from), failure.PolicyRateLimit))
	require.NoError(t, l.CountCall(&net.TCPAddr{IP: net.ParseIP("192.0.2.2")}))
	require.NoError(t, New(nil).CountCall(from))
}

func TestLimiter_LimitsFailedAuthenticationsFromAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Table{Failures: {Rate: 1, Burst: 2}})
		at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711} }
		for range 10 {
			require.NoError(t, l.CheckFailures(at("192.0.2.1")), "CheckFailures counts nothing")
		}
		for _, ip := range []string{"192.0.2.1", "2001:db8::1"} {
			l.CountFailure(at(ip))
			l.CountFailure(at(ip))
			l.CountFailure(at(ip)) // an empty bucket stays empty and gets no debt
		}
		require.True(t, failure.Is(l.CheckFailures(at("192.0.2.1")), failure.PolicyRateLimit))
		require.True(t, failure.Is(l.CheckFailures(at("::ffff:192.0.2.1")), failure.PolicyRateLimit), "the same address")
		require.True(t, failure.Is(l.CheckFailures(at("2001:db8::ffff:2")), failure.PolicyRateLimit), "the same /64")
		for _, other := range []net.Addr{at("192.0.2.2"), at("2001:db8:0:1::1"), &net.UnixAddr{Name: "x"}, nil} {
			require.NoError(t, l.CheckFailures(other))
		}
		after, ok := failure.RetryAfter(l.CheckFailures(at("192.0.2.1")))
		require.True(t, ok)
		time.Sleep(after)
		require.NoError(t, l.CheckFailures(at("192.0.2.1")))
	})
}

// A caller that keeps changing its name neither fills the memory nor escapes the limit.
func TestBuckets_AreBoundedAndDropIdleOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Table{Turns: {Rate: 1, Burst: 1}})
		admitted := 0
		for n := range 2 * maxBuckets {
			if l.Admit(orchestrate, client("a", fmt.Sprint(n))) == nil {
				admitted++
			}
		}
		require.Len(t, l.callers.limiters, maxBuckets)
		require.Equal(t, maxBuckets+1, admitted, "further callers share one bucket")
		time.Sleep(time.Second)
		require.NoError(t, l.Admit(orchestrate, client("a", "late")))
		require.Len(t, l.callers.limiters, 1)
	})
}

func TestLoad_MergesFileAndDefaults(t *testing.T) {
	none, err := Load("", Defaults())
	require.NoError(t, err)
	require.Equal(t, Defaults(), none)
	for text, want := range map[string]string{
		"turns: {rate: 20, burst: 40}":       "",
		"":                                   "",
		"turn: {rate: 1, burst: 1}":          `"turn" is no class; there are failures, operations, probes, reads, resets, streams, tenant-operations, tenant-reads, tenant-turns, tenant-watches, tenant-writes, turns, watches, writes`,
		"turns: {rate: 1}":                   "turns: rate 1 with burst 0: a burst is at least 1",
		"turns: {rate: -1, burst: 2}":        "turns: rate -1 with burst 2",
		"turns: {rate: .nan, burst: 1}":      "turns: rate NaN",
		"turns: {speed: 1}":                  "field speed not found",
		"mesh: {rate: 1, burst: 1}":          `"mesh" is no class`,
		"tenant-turns: {rate: 9, burst: 9}":  "",
		"tenant-probes: {rate: 9, burst: 9}": `"tenant-probes" is no class`,
	} {
		file := filepath.Join(t.TempDir(), "rates.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		got, err := Load(file, Defaults())
		if want != "" {
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, file)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, Defaults()[Reads], got[Reads])
	}
	_, err = Load("missing.yaml", Defaults())
	require.ErrorContains(t, err, "missing.yaml")
}
