package briefing

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// maxFileLoads is how many files a step loads at once.
const maxFileLoads = 8

// LoadFiles loads the files of the tool results that an agent remembers from earlier turns, so that its model reads what
// it read then (CO-74, LP-45). Files that were deleted stay without their content.
func LoadFiles(ctx context.Context, from *hook.Memory, files []*conversation.Attachment) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxFileLoads)
	for _, f := range files {
		group.Go(func() (err error) {
			defer panics.Recover("agent.Run", &err)
			f.Data, _, err = from.LoadArtifact(ctx, f.Name, f.Version)
			if failure.Is(err, failure.NotFound) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}
