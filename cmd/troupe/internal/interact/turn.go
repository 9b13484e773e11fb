package interact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// turnFlags holds the flags of every command that starts a turn and prints it.
type turnFlags struct {
	remote.Server      `embed:""`
	credentialFlags    `embed:""`
	RequestID          string        `help:"Makes the call repeatable: the same id returns the same turn." placeholder:"ID"`
	Timeout            time.Duration `help:"Timeout of the turn (0 means the default of its workflow, or of the orchestrator)." default:"0"`
	CancelOnDisconnect bool          `name:"cancel-on-disconnect" help:"Cancel the turn if this command ends, or loses the mesh for 2 s, before it."`
	JSON               bool          `name:"json" help:"Print one Event a line in protobuf JSON."`
}

// send sends the request that begin returns and prints the events. It returns an exit code that reflects how the
// turn ended. The second result of begin tells the user how to send the same request again.
func (t *turnFlags) send(ctx context.Context, term console.Terminal,
	begin func(context.Context, *client.Client) (_ *troupev1.OrchestrateRequest, again string, _ error),
) error {
	auth, err := t.readAuth()
	if err != nil {
		return err
	}
	c, conn, err := t.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	req, again, err := begin(ctx, c)
	if err != nil {
		return t.ExplainError(err)
	}
	req.RequestId, req.Auth = t.RequestID, auth
	if t.Timeout != 0 {
		req.Timeout = durationpb.New(t.Timeout)
	}
	if t.CancelOnDisconnect {
		req.OnDisconnect = troupev1.OnDisconnect_ON_DISCONNECT_CANCEL
	}
	v := &render.View{Terminal: term, Server: t.Server, User: req.GetUserId()}
	admitted, err := v.Show(t.JSON, remote.NewRetryingClient(c, term).Turn(ctx, req))
	if _, ended := errors.AsType[console.ExitCode](err); err != nil && !ended && (admitted || mayHaveStarted(err)) {
		if again == "" {
			again = "send the same text with: --session " + req.GetSessionId()
			if len(req.GetParts()) > 0 {
				again = "send the same text and files with: --session " + req.GetSessionId()
			}
		}
		asked := turnOptionFlags{
			Profile: req.GetProfile(), Need: req.GetNeeds(), Metadata: req.GetMetadata(), MaxIterations: req.GetMaxIterations(),
			ErrorStrategy: errorStrategyFromProto(req.GetErrorStrategy()),
			Priority:      req.Priority, Tag: req.GetTags(), //nolint:protogetter // an unset priority is not 0
		}
		fmt.Fprintf(term.Err, "The turn may have begun, and continue without you. To see how it ends, %s --request-id %s%s\n",
			again, req.GetRequestId(), budgetFlagsToRepeat(req.GetBudget())+asked.flagsToRepeat()+t.repeatHint())
	}
	return t.ExplainError(err)
}

// mayHaveStarted reports whether a turn may be running although the call failed with this error.
func mayHaveStarted(err error) bool {
	return failure.Is(err, failure.TraceOrphaned, failure.SystemNetwork, failure.SystemTimeout)
}
