package authz

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Every method that the module serves has a row in the table, so a new method cannot be forgotten.
func TestTable_HasARowForEveryMethod(t *testing.T) {
	served := map[string]bool{}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if own := strings.HasPrefix(string(file.Package()), "troupe."); !own && !strings.HasPrefix(string(file.Package()), "grpc.") {
			return true // declared by a library but not served
		}
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				served["/"+string(m.Parent().FullName())+"/"+string(m.Name())] = true
			}
		}
		return true
	})
	for method := range served {
		_, ok := RolesFor(method)
		require.True(t, ok, "%s has no row: say in table.go who may call it", method)
	}
	for _, method := range Methods() {
		require.True(t, served[method], "%s has a row but no server has it", method)
	}
}

func TestAuthorize_RejectsMethodsWithoutARow(t *testing.T) {
	for _, method := range []string{
		"", "/", "/troupe.v1.MemoryService/", "/troupe.v1.MemoryService/CommitStep2", "troupe.v1.MemoryService/CommitStep",
		"/troupe.v1.MemoryService/commitstep",
	} {
		for _, role := range append(everyone, identity.Anybody) {
			err := Authorize(method, identity.Principal{Role: role})
			require.True(t, failure.Is(err, failure.PolicySecurity), "%s %q", role, method)
		}
	}
}

// Every method that writes state has a row in the table. The service that serves it owns the state, except a
// configuration, which is shared.
func TestWrittenState_ReturnsTheOwner(t *testing.T) {
	for method := range writtenKeys {
		_, ok := RolesFor(method)
		require.True(t, ok, method)
		key, owner, ok := WrittenState(method)
		require.True(t, ok)
		want := ownership.Memory
		switch {
		case key == "config":
			want = ownership.Shared
		case strings.Contains(method, "OrchestratorService"):
			want = ownership.Orchestrator
		}
		require.Equal(t, want, owner, method)
	}
	// In the two services that keep state, every method writes unless its name has a reading verb.
	looks := []string{"/Get", "/List", "/Load", "/Search", "/Describe", "/Watch", "/ReplayTrace"}
	for method := range table {
		if strings.Contains(method, ".MemoryService/") || strings.Contains(method, ".OrchestratorService/") {
			_, _, ok := WrittenState(method)
			require.NotEqual(t, slices.ContainsFunc(looks, func(look string) bool { return strings.Contains(method, look) }), ok,
				"%s: say in writes.go what it writes", method)
		}
	}
}

// Each method that only operators may call creates an audit entry, unless it only reads.
func TestAuditKind_CoversActionsOfOperators(t *testing.T) {
	looks := []string{"/List", "/Describe", "/Get", "ServerReflectionInfo", "ConformanceService"}
	for method, roles := range table {
		_, audited := AuditKind(method)
		if slices.ContainsFunc(looks, func(look string) bool { return strings.Contains(method, look) }) {
			require.False(t, audited, method)
		} else if slices.Equal(roles, operators) || slices.Equal(roles, lifecycleManagers) && !strings.Contains(method, "WatchState") && !strings.Contains(method, "OwnsState") {
			require.True(t, audited, "%s: say in audited.go of which kind its entries are", method)
		}
	}
	for method := range auditKinds {
		require.Contains(t, table, method)
	}
}
