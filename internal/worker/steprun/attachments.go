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

// attach gives what the user said last of a history the bytes of its attachments (AD-25), all at
// once, so that a step with files waits for the memory service one time more. Earlier ones stay
// without: the agent knows of them, and a tool or a handler may load them. What was deleted
// meanwhile stays without too.
func (s *Runner) attach(ctx context.Context, ref session.Ref, history []conversation.Message) error {
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
				_, err := transfer.Download(ctx, s.turns, ref, a.Name, a.Version, &content)
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
