package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/chatformat"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/toolrounds"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// exportTimeout bounds an export. It reads the whole session, page by page.
const exportTimeout = 2 * time.Minute

// export prints the session in the format of OpenAI's Chat Completions API.
func (g *getSessionCommand) export(ctx context.Context, term console.Terminal) error {
	c, conn, err := g.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	if _, err = c.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: g.ID}); err != nil {
		return g.ExplainError(err)
	}
	listed, err := listAllMessages(ctx, c, g.ID)
	if err != nil {
		return g.ExplainError(err)
	}
	messages, system := wire.MessagesFromProto(listed), ""
	if g.Agent != "" {
		rounds, err := listAllRounds(ctx, c, g.ID, g.Agent)
		if err != nil {
			return g.ExplainError(err)
		}
		messages = toolrounds.Merge(messages, rounds)
		if system, err = instructionsOf(ctx, c, g.Agent); err != nil {
			fmt.Fprintf(term.Err, "without the system prompt of %s: %s\n", g.Agent, console.Escape(failure.PlainMessage(grpcfailure.FromStatus("troupe", err))))
		}
	}
	return chatformat.Write(term.Out, chatformat.Export(system, g.Agent, messages))
}

// listAllRounds reads all tool rounds of an agent in a session, page by page.
func listAllRounds(ctx context.Context, c *client.Client, session, agent string) ([]conversation.Rounds, error) {
	return toolrounds.All(func(before *conversation.Rounds) ([]conversation.Rounds, error) {
		resp, err := c.Sessions.ListRounds(ctx, &troupev1.ListRoundsRequest{
			SessionId: session, Agent: agent, Before: memorywire.RoundsPositionToProto(before),
		})
		return memorywire.StepRoundsFromProto(resp.GetSteps()), err
	})
}

// instructionsOf returns the system prompt of an agent as one of its registered instances has it. Modes: not_found when none
// tells it, and those of a caller that may not ask.
func instructionsOf(ctx context.Context, c *client.Client, agent string) (string, error) {
	listed, err := c.ListInstances(ctx, &troupev1.ListInstancesRequest{Agent: agent})
	if err != nil {
		return "", err
	}
	for _, in := range listed.GetInstances() {
		described, err := c.DescribeInstance(ctx, &troupev1.DescribeInstanceRequest{InstanceId: in.GetInstanceId(), Agent: agent})
		if err != nil {
			return "", err
		}
		if described.GetInstructions() != "" {
			return described.GetInstructions(), nil
		}
	}
	return "", failure.New(failure.NotFound, "troupe", "no running instance of it tells the prompt")
}
