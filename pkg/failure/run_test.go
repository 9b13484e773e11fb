package failure

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

const runTraceID = "0af7651916cd43dd8448eb211c80319c"

// The failure of a run has a stage, a trace, a message, facts and a cause, and says whether it is
// recoverable.
//
// Req: OC-20
func TestWithRun_AddsStageAndTrace(t *testing.T) {
	disk := fmt.Errorf("write: %w", io.ErrShortWrite)
	cause := New(ResourceAPI, "llm.Generate", "the model is down").With("provider", "test").Because(disk)
	err := error(WithRun("execute", runTraceID, fmt.Errorf("step 2: %w", cause)))

	require.EqualError(t, err, "llm.Generate: resource_api: the model is down (stage execute, trace "+runTraceID+"): write: short write")
	require.ErrorIs(t, err, io.ErrShortWrite, "the chain is kept")
	e, ok := errors.AsType[*Error](err)
	require.True(t, ok)
	require.True(t, e.Recoverable())
	require.Equal(t, map[string]string{"stage": "execute", "trace_id": runTraceID, "provider": "test"}, e.Facts)
	require.Equal(t, "the model is down", PlainMessage(err))
	require.Empty(t, cause.Facts[FactStage], "the cause stays as it was")

	outer := WithRun("execute", runTraceID, New(ResourceTool, "agent.Run", "the agent below failed").Because(err))
	require.ErrorIs(t, outer, io.ErrShortWrite)
	inner, ok := errors.AsType[*Error](outer.Unwrap())
	require.True(t, ok)
	require.Equal(t, runTraceID, outer.Facts[FactTrace])
	require.Equal(t, runTraceID, inner.Facts[FactTrace], "a nested run has the same trace")

	none := WithRun("route", runTraceID, New(NoWorker, "dispatch", "no instance took it"))
	require.False(t, none.Recoverable(), "OC-6")
	unknown := WithRun("plan", runTraceID, errors.New("secret"))
	require.ErrorContains(t, unknown, "stage plan, trace "+runTraceID)
	require.False(t, unknown.Recoverable())
}
