package dispatch

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// entriesTimeout bounds the answer to a worker that asks for events of earlier turns. Events of the step wait meanwhile, so
// it is shorter than the longest silence.
const entriesTimeout = 4 * time.Second

// provideEntries answers a worker that asks for events of earlier turns (CO-68). A worker that gets no answer reports that
// itself.
func provideEntries(ctx context.Context, worker troupev1.AgentServiceClient, asked *troupev1.EntriesRequest, h Handler) {
	ctx, cancel := context.WithTimeout(ctx, entriesTimeout)
	defer cancel()
	events, err := h.EarlierEntries(ctx, int(asked.GetLimit()))
	_, _ = worker.ProvideEntries(ctx, &troupev1.ProvideEntriesRequest{Id: asked.GetId(), Events: events, Failure: grpcfailure.ToProto(err)})
}
