package authz

import (
	"testing"

	"github.com/troupe-dev/troupe/internal/identity"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func BenchmarkAuthorize(b *testing.B) {
	worker := identity.Principal{Role: identity.Worker, Name: "a"}
	b.ReportAllocs()
	for b.Loop() {
		if err := Authorize(troupev1.MemoryService_CommitStep_FullMethodName, worker); err != nil {
			b.Fatal(err)
		}
	}
}
