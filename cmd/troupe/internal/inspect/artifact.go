package inspect

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type getArtifactsCommand struct {
	remote.Query `embed:""`
	Session      string `arg:"" help:"Id of the session."`
}

// Run lists the artifacts of the session, and its user's artifacts, whose names begin with user:.
func (g *getArtifactsCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.ListArtifactsResponse
	return g.Show(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.Sessions.ListArtifacts(ctx, &troupev1.ListArtifactsRequest{SessionId: g.Session})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "NAME\tVERSION\tTYPE\tBYTES\tAGE\tTURN")
		for _, a := range resp.GetArtifacts() {
			console.PrintRow(w, a.GetName(), a.GetVersion(), console.OrDash(a.GetMediaType()), a.GetSize(), console.FormatAge(a.GetCreated()), a.GetTurnId())
		}
	})
}

type getArtifactCommand struct {
	remote.Server `embed:""`
	Session       string `arg:"" help:"Id of the session."`
	Name          string `arg:"" help:"Name of the artifact; troupe get artifacts lists them."`
	Version       int32  `help:"Version to show (0 means the latest)." default:"0"`
	Output        string `short:"o" help:"File to write (empty means standard output)." placeholder:"FILE"`
}

// Run writes the content of the artifact. It writes nothing if the download is incomplete.
func (g *getArtifactCommand) Run(ctx context.Context, term console.Terminal) error {
	c, conn, err := g.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	content, err := g.download(ctx, c)
	if err != nil {
		return g.ExplainError(err)
	}
	if g.Output == "" {
		_, err = term.Out.Write(content)
		return err
	}
	return os.WriteFile(g.Output, content, 0o600)
}

func (g *getArtifactCommand) download(ctx context.Context, c *client.Client) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Sessions.GetArtifact(ctx, &troupev1.GetArtifactRequest{SessionId: g.Session, Name: g.Name, Version: g.Version})
	if err != nil {
		return nil, err
	}
	var a *troupev1.Artifact
	var content bytes.Buffer
	for {
		item, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if item.GetArtifact() != nil {
			a = item.GetArtifact()
		}
		content.Write(item.GetChunk())
	}
	if sum := sha256.Sum256(content.Bytes()); hex.EncodeToString(sum[:]) != a.GetSha256() {
		return nil, fmt.Errorf("the %d bytes of artifact %s that arrived do not have its digest; try again", content.Len(), g.Name)
	}
	return content.Bytes(), nil
}
