package compact

import (
	"context"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/summary"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

// Summarize lets the model of an agent write a summary of messages.
type Summarize func(ctx context.Context, agent string, messages []conversation.Message) (string, error)

// writtenSummary is a text of a model that replaces the messages up to a sequence.
type writtenSummary struct {
	text string
	upTo int64
}

// summarize returns the summary of the oldest messages of a session. If the session was busy when an earlier summary
// was written, it is that summary.
func (c *Compactor) summarize(ctx context.Context, s Session) (writtenSummary, error) {
	if found, ok := c.take(s.Ref); ok {
		return found, nil
	}
	messages, err := c.cfg.Memory.LoadHistory(ctx, s.Ref, 0, memory.MaxWindow)
	if err != nil {
		return writtenSummary{}, err
	}
	read, upTo := summary.Select(messages, s.Messages-int64(s.Settings.Keep()), s.Settings.Strategy)
	if len(read) == 0 {
		return writtenSummary{}, failure.New(failure.NotFound, "compact", "the session has no messages to summarize any more")
	}
	text, err := c.cfg.Summarize(ctx, s.Agent, read)
	return writtenSummary{text: text, upTo: upTo}, err
}

// take returns the summary of a session that is not stored yet.
func (c *Compactor) take(ref session.Ref) (writtenSummary, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.written[ref]
	delete(c.written, ref)
	return found, ok
}

// keep remembers a summary until the next turn of its session has ended.
func (c *Compactor) keep(ref session.Ref, s writtenSummary) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.text != "" && len(c.written) < maxWritten {
		c.written[ref] = s
	}
}

// ByWorkers returns a Summarize that asks the instances of the agent, one after another, until one takes the call.
func ByWorkers(cache *instances.Cache, pool *connection.Pool) Summarize {
	return func(ctx context.Context, agent string, messages []conversation.Message) (string, error) {
		list, _ := cache.List(agent)
		refusal := error(failure.Newf(failure.NoWorker, "compact", "no instance of agent %s is ready", agent))
		for _, in := range list.Instances {
			conn, release, err := pool.Get(ctx, in)
			if err != nil {
				refusal = err
				continue
			}
			resp, err := troupev1.NewAgentServiceClient(conn).Summarize(ctx, &troupev1.SummarizeRequest{Agent: agent, Messages: wire.MessagesToProto(messages)})
			release()
			if err == nil {
				return resp.GetSummary(), nil
			}
			refusal = grpcfailure.FromStatus("compact", err)
			if !failure.Is(refusal, failure.SystemNetwork, failure.InstanceFull, failure.InstancePaused, failure.InstanceDraining) {
				break
			}
		}
		return "", refusal
	}
}
