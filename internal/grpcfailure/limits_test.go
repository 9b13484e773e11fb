package grpcfailure_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Every failure can be stored and sent, and so can a list of failures. Texts that are too long are cut. The stage
// and the trace are always kept.
func TestToProto_CutsWhatExceedsTheLimits(t *testing.T) {
	many := failure.New(failure.ResourceTool, "op", "no")
	for i := range 100 {
		many = many.With(fmt.Sprintf("a%02d", i), "x")
	}
	for name, err := range map[string]*failure.Error{
		"a long fact":       failure.New(failure.ResourceTool, "op", "no").With("big", strings.Repeat("x", 10<<20)),
		"a long key":        failure.New(failure.ResourceTool, "op", "no").With(strings.Repeat("k", 1<<20), "x"),
		"many facts":        many,
		"a long message":    failure.New(failure.ResourceTool, strings.Repeat("o", 1<<20), strings.Repeat("ü", 1<<20)),
		"invalid UTF-8":     failure.New(failure.ResourceTool, "op\xff", "no\xff").With("a", "b\xff").With("c\xff", "d"),
		"a cut in a letter": failure.New(failure.ResourceTool, "op", "no").With("big", "x"+strings.Repeat("ü", 1<<10)),
	} {
		t.Run(name, func(t *testing.T) {
			sent := grpcfailure.ToProto(failure.WithRun("execute", strings.Repeat("1", 32), err))
			require.NoError(t, rpc.Validate(sent))
			require.Less(t, proto.Size(sent), 16<<10)
			got := grpcfailure.FromProto(sent)
			require.Equal(t, failure.ResourceTool, got.Mode)
			require.Equal(t, "execute", got.Facts[failure.FactStage])
			require.Equal(t, strings.Repeat("1", 32), got.Facts[failure.FactTrace])
			_, marshalErr := proto.Marshal(sent)
			require.NoError(t, marshalErr)
			again := grpcfailure.FromStatus("op", grpcfailure.ToStatus(err))
			require.True(t, failure.Is(again, failure.ResourceTool), "%v", again)
		})
	}
	sent := grpcfailure.ToProto(failure.New(failure.ResourceTool, "op", "no").With("big", strings.Repeat("x", 2000)).With("small", "x"))
	require.Len(t, sent.GetFacts()["big"], 1024)
	require.Equal(t, "x", sent.GetFacts()["small"])
}
