package serve

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/internal/a2a"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type a2aCommand struct {
	Server string `help:"Address of the orchestrator. --addr is the same." aliases:"addr" default:"127.0.0.1:7400" env:"TROUPE_ADDR"`
	Listen string `help:"Address to serve A2A at, in plain text and without authentication." default:"127.0.0.1:7410" env:"TROUPE_A2A_LISTEN"`
	URL    string `name:"url" help:"Where clients reach it, for the agent card (empty means http:// and the address it serves at)." env:"TROUPE_A2A_URL"`
	Name   string `help:"Name under which clients see the mesh as an agent." default:"troupe" env:"TROUPE_A2A_NAME"`
	Target string `help:"Workflow or agent for messages that name none (empty means the default workflow)." placeholder:"NAME"`

	Bearer bool `help:"Forward the bearer token of each request to the orchestrator. The agent card then requires one."`

	AllowUnauthenticated bool `help:"Allow an address other than loopback. Everyone who reaches it may then talk to the mesh."`

	TLS       identity.ClientTLS `embed:""`
	Telemetry telemetry.Config   `embed:""`
}

// Help implements kong.HelpProvider.
func (a2aCommand) Help() string {
	return `Clients of A2A find the agent card at /.well-known/agent-card.json, JSON-RPC at / and the same as REST.

Example: troupe a2a --server 127.0.0.1:7400 --listen 127.0.0.1:7410`
}

// Run serves until the process receives a signal.
func (b *a2aCommand) Run(ctx context.Context, term console.Terminal) error {
	if err := b.checkListen(); err != nil {
		return err
	}
	if err := remote.CheckAddress("server", b.Server); err != nil {
		return err
	}
	if os.Getenv("TROUPE_LOG_FORMAT") == "" {
		b.Telemetry.LogFormat = "console" // a person reads the log
	}
	t, err := telemetry.New(ctx, "a2a", b.Telemetry)
	if err != nil {
		return err
	}
	defer t.Close()
	creds, err := b.TLS.Credentials()
	if err != nil {
		return failure.New(failure.UserInvalidInput, "troupe a2a", err.Error())
	}
	if b.Bearer && b.TLS == (identity.ClientTLS{}) && !bearer.IsLoopbackTarget(b.Server) {
		return failure.Newf(failure.UserInvalidInput, "troupe a2a",
			"--bearer: others could read the tokens on their way to %s, which is in plain text; add --tls-ca", b.Server)
	}
	conn, err := rpc.DialWith(creds, b.Server, t)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var open net.ListenConfig
	lis, err := open.Listen(ctx, "tcp", b.Listen)
	if err != nil {
		return failure.Newf(failure.SystemNetwork, "troupe a2a", "--listen: cannot serve at %s: choose another address", b.Listen).Because(err)
	}
	url := cmp.Or(b.URL, "http://"+lis.Addr().String())
	mesh := client.New(conn)
	served := a2a.New(a2a.Config{Client: mesh, Log: t.Log, URL: url, Name: b.Name, DefaultTarget: b.Target, ForwardTokens: b.Bearer}).Handler()
	return process.Run(ctx, t.Log, func() {
		fmt.Fprintf(term.Out, "A2A is served at %s for the mesh at %s.\nStop it with Ctrl-C.\n", url, b.Server)
	}, probe.ServerPart(lis, served), b.checkMesh(mesh, term))
}

// checkMesh returns a part of the process that prints a warning if the mesh cannot be reached. The bridge still
// starts, because it connects again for each request.
func (b *a2aCommand) checkMesh(mesh *client.Client, term console.Terminal) process.Part {
	return process.Part{Name: "look", Grace: time.Second, Run: func(ctx context.Context, ready func()) error {
		ready()
		asking, cancel := context.WithTimeout(ctx, remote.Timeout)
		defer cancel()
		_, err := mesh.ListAgents(asking, &troupev1.ListAgentsRequest{})
		err = grpcfailure.FromStatus("troupe a2a", err)
		if ctx.Err() == nil && failure.Is(err, failure.SystemNetwork, failure.SystemTimeout) {
			err = remote.Server{Addr: b.Server, TLS: b.TLS}.ExplainError(err)
			fmt.Fprintf(term.Err, "troupe: %s. Requests fail until it can be reached.\n", console.Escape(failure.PlainMessage(err)))
		}
		<-ctx.Done()
		return nil
	}}
}

// checkListen rejects an address that other machines can reach, unless the user set the flag that allows it.
func (b *a2aCommand) checkListen() error {
	host, _, err := net.SplitHostPort(b.Listen)
	if err != nil {
		return failure.Newf(failure.UserInvalidInput, "troupe a2a", "--listen: want HOST:PORT, such as 127.0.0.1:7410, not %q", b.Listen)
	}
	ip, err := netip.ParseAddr(host)
	if b.AllowUnauthenticated || host == "localhost" || err == nil && ip.IsLoopback() {
		return nil
	}
	return failure.Newf(failure.UserInvalidInput, "troupe a2a",
		"--listen: everyone who reaches %s could talk to the mesh, because there is no authentication; serve at 127.0.0.1 behind a "+
			"proxy that authenticates, or add --allow-unauthenticated", b.Listen)
}
