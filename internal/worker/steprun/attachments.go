package steprun

import (
	"bytes"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/transfer"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

// loadAttachments loads the attachments of the user's last message in the history (AD-25). It loads them in
// parallel, so files delay a step by only one more round trip to the memory service. It does not load attachments
// of earlier messages. The agent knows their names, and a tool or handler may load them. It skips deleted
// attachments.
func (r *Runner) loadAttachments(ctx context.Context, ref session.Ref, history []conversation.Message) error {
	last := -1
	for i, m := range slices.Backward(history) {
		if m.Role == conversation.RoleUser && m.Author == "" {
			last = i
			break
		}
	}
	if last < 0 || len(history[last].Attachments) == 0 {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range history[last].Attachments[:min(len(history[last].Attachments), conversation.MaxAttachments)] {
		a := &history[last].Attachments[i]
		if a.Size > conversation.MaxAttachmentBytes {
			continue
		}
		group.Go(func() (err error) {
			defer panics.Recover("agent.ExecuteStep", &err)
			data, err := retry.Do(ctx, func(ctx context.Context) ([]byte, error) {
				var content bytes.Buffer
				_, err := transfer.Download(ctx, r.store, ref, a.Name, a.Version, &content)
				return content.Bytes(), err
			})
			if err == nil {
				a.Data = data
			}
			if failure.Is(err, failure.NotFound) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}
