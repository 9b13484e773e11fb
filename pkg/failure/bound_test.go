package failure_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Whatever a failure says, it can be stored and sent, and a list of them too: what is too long is cut,
// and the failure is not lost for it. What tells of which run it is stays.
func TestToProto_KeepsToTheRules(t *testing.T) {
	many := failure.New(failure.ResourceTool, "op", "no")
	for i := range 100 {
		many = many.With(fmt.Sprintf("a%02d", i), "x")
	}
	for name, err := range map[string]*failure.Error{
		"a long fact":       failure.New(failure.ResourceTool, "op", "no").With("big", strings.Repeat("x", 10<<20)),
		"a long key":        failure.New(failure.ResourceTool, "op", "no").With(strings.Repeat("k", 1<<20), "x"),
		"many facts":        many,
		"a long message":    failure.New(failure.ResourceTool, strings.Repeat("o", 1<<20), strings.Repeat("ü", 1<<20)),
		"what is no UTF-8":  failure.New(failure.ResourceTool, "op\xff", "no\xff").With("a", "b\xff").With("c\xff", "d"),
		"a cut in a letter": failure.New(failure.ResourceTool, "op", "no").With("big", "x"+strings.Repeat("ü", 1<<10)),
	} {
		t.Run(name, func(t *testing.T) {
			told := failure.ToProto(failure.In("execute", strings.Repeat("1", 32), err))
			require.NoError(t, rpc.Validate(told))
			require.Less(t, proto.Size(told), 16<<10)
			got := failure.FromProto(told)
			require.Equal(t, failure.ResourceTool, got.Mode)
			require.Equal(t, "execute", got.Facts[failure.FactStage])
			require.Equal(t, strings.Repeat("1", 32), got.Facts[failure.FactTrace])
			_, sent := proto.Marshal(told)
			require.NoError(t, sent)
			again := failure.FromStatus("op", failure.ToStatus(err))
			require.True(t, failure.Is(again, failure.ResourceTool), "%v", again)
		})
	}
	told := failure.ToProto(failure.New(failure.ResourceTool, "op", "no").With("big", strings.Repeat("x", 2000)).With("small", "x"))
	require.Len(t, told.GetFacts()["big"], 1024)
	require.Equal(t, "x", told.GetFacts()["small"])
}
