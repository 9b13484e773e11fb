package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	researchassistant "github.com/troupe-dev/troupe/agents/research-assistant"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/telemetry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/standalone"
)

type devCommand struct {
	DataDir  string         `help:"Folder for the data of etcd and Redis." default:".troupe" env:"TROUPE_DATA_DIR" type:"path"`
	GRPCAddr string         `name:"grpc-addr" help:"Address of the orchestrator, in plain text." default:"127.0.0.1:7400" env:"TROUPE_GRPC_ADDR"`
	HTTPAddr string         `name:"http-addr" help:"Address of the probes: /livez /readyz /startupz /metrics." default:"127.0.0.1:7480" env:"TROUPE_HTTP_ADDR"`
	Agents   console.Folder `help:"Folder of agents and workflows (empty means the built-in research assistant)." env:"TROUPE_AGENTS" placeholder:"DIR"`
	Reload   bool           `help:"Replace agents whose files in the folder change." default:"true" negatable:"" env:"TROUPE_RELOAD"`
	Docs     string         `help:"Folder that search_documents searches, in place of the declared one." env:"TROUPE_DOCS" placeholder:"DIR"`
	AgentLog string         `name:"agent-log" help:"Folder for logs of agents (empty means the data folder, off none)." env:"TROUPE_AGENT_LOG" placeholder:"DIR"`
	Drain    time.Duration  `help:"How long running turns may take to end at a stop." default:"10s" env:"TROUPE_DRAIN"`
	Ask      string         `help:"Ask this when the mesh is up, show the turn, and stop." placeholder:"TEXT"`
	Target   string         `help:"Workflow or agent that should answer --ask (empty means the default workflow, or else the only agent)." placeholder:"NAME"`

	InsecurePlaintext bool `name:"insecure-plaintext-beyond-loopback" help:"Allow a --grpc-addr that other machines reach, in plain text and without any proof of who calls: anyone who reaches it may do all that an admin may." env:"TROUPE_INSECURE_PLAINTEXT_BEYOND_LOOPBACK"`

	Telemetry telemetry.Config `embed:""`
}

// Run runs the mesh until the process receives a signal. With --ask it stops once the question is answered.
func (d *devCommand) Run(ctx context.Context, term console.Terminal) error {
	if os.Getenv("TROUPE_LOG_FORMAT") == "" {
		d.Telemetry.LogFormat = "console" // a person reads the log
	}
	if d.Ask != "" && os.Getenv("TROUPE_LOG_LEVEL") == "" {
		d.Telemetry.LogLevel = "warn"
	}
	cfg := standalone.Config{
		DataDir: d.DataDir, GRPCAddr: d.GRPCAddr, HTTPAddr: d.HTTPAddr, Agents: d.workerFiles(), Docs: d.Docs, Drain: d.Drain,
		AgentLog: d.agentLogFolder(), Watch: d.watchedFolder(), InsecurePlaintext: d.InsecurePlaintext,
	}
	if err := cfg.Check(); err != nil { // before any file is written
		return err
	}
	d.Telemetry.AuditLog = d.auditLog()
	t, err := telemetry.New(ctx, "troupe", d.Telemetry)
	if err != nil {
		return err
	}
	defer t.Close()
	began := time.Now()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	asked := make(chan error, 1)
	forget := func() {}
	err = standalone.Run(ctx, t, cfg, func(e standalone.Endpoints) {
		if d.Ask == "" {
			if err := d.writeEnv(e); err != nil {
				t.Log.Warn("mesh.env cannot be written; give programs the addresses of the mesh yourself", zap.Error(err))
			}
			forget = func() { _ = os.Remove(d.envFile()) }
			d.printEndpoints(term, e, time.Since(began))
			return
		}
		go func() { defer stop(); asked <- d.askOnce(ctx, term, e) }()
	})
	forget()
	select {
	case answer := <-asked:
		return errors.Join(answer, err)
	default:
	}
	if err == nil && d.Ask == "" {
		fmt.Fprintf(term.Out, "\nThe mesh has stopped. Its sessions and traces are stored in %s.\n", d.DataDir)
	}
	return err
}

// agentLogFolder returns the folder for the logs of agents (empty means no logs). The default is in the data
// folder.
func (d *devCommand) agentLogFolder() string {
	if d.AgentLog == "off" {
		return ""
	}
	return cmp.Or(d.AgentLog, d.DataDir)
}

// auditLog returns the path of the audit log that all services share. The default is in the data folder.
func (d *devCommand) auditLog() string {
	return cmp.Or(d.Telemetry.AuditLog, filepath.Join(d.DataDir, "audit", "mesh.jsonl"))
}

func (d *devCommand) workerFiles() fs.FS {
	if d.Agents == "" {
		return researchassistant.FS
	}
	return os.DirFS(string(d.Agents))
}

// watchedFolder returns the folder that is watched for changed agents (empty if none is watched).
func (d *devCommand) watchedFolder() string {
	if !d.Reload {
		return ""
	}
	return string(d.Agents)
}

func (d *devCommand) envFile() string { return filepath.Join(d.DataDir, "mesh.env") }

// writeEnv writes a file with the settings of programs that join the mesh. The file is removed when the mesh
// stops.
func (d *devCommand) writeEnv(e standalone.Endpoints) error {
	text := fmt.Sprintf("TROUPE_ETCD=%s\nTROUPE_MEMORY=%s\nTROUPE_ADDR=%s\nTROUPE_TLS_DEV_CA=%s\n", strings.Join(e.Etcd, ","), e.Memory, e.GRPC, e.DevCA)
	return os.WriteFile(d.envFile(), []byte(text), 0o600)
}

// target returns the agent or workflow that answers when the user names none (empty means the default workflow).
func (d *devCommand) target(e standalone.Endpoints) string {
	if d.Target == "" && len(e.Workflows) == 0 && len(e.Agents) == 1 {
		return e.Agents[0]
	}
	return d.Target
}

func (d *devCommand) printEndpoints(term console.Terminal, e standalone.Endpoints, took time.Duration) {
	ask, grpcurl := `"What may an agent write?"`, `"text":"What may an agent write?"`
	if d.Agents != "" {
		ask, grpcurl = `"Hello?"`, `"text":"Hello?"`
	}
	if len(e.Workflows) == 0 {
		ask, grpcurl = "--target "+e.Agents[0]+" "+ask, grpcurl+`,"target":"`+e.Agents[0]+`"`
	}
	fmt.Fprintf(term.Out, `
The mesh is up after %[1]s, with the agents %[2]s.

  gRPC    %[3]s   (plain text, with reflection)
  HTTP    http://%[4]s/readyz  /livez  /startupz  /metrics
  etcd    %[5]s
  memory  %[6]s   (mutual TLS, as between all parts inside)
  data    %[7]s

Ask it something:

  troupe ask --addr %[3]s %[8]s

  grpcurl -plaintext -d '{%[9]s}' %[3]s troupe.v1.OrchestratorService/Orchestrate

`, took.Round(time.Millisecond), strings.Join(e.Agents, ", "), e.GRPC, e.HTTP, strings.Join(e.Etcd, ","), e.Memory, d.DataDir, ask, grpcurl)
	if d.watchedFolder() != "" {
		fmt.Fprintf(term.Out, "Edit the files in %s: new turns use what they say.\n\n", d.Agents)
	}
	if d.Agents == "" {
		fmt.Fprintf(term.Out, `Add an agent of your own, such as the one in examples/hello-agent:

  env $(cat %s) go run ./examples/hello-agent --grpc-addr 127.0.0.1:0 --http-addr 127.0.0.1:0

  troupe ask --addr %s --target hello "How do I say hello in Norwegian?"

`, d.envFile(), e.GRPC)
	}
	fmt.Fprintf(term.Out, `Write one, in YAML or in Go; in the folder of one in Go this adds it:

  troupe new agent NAME [--go]

  env $(cat %s) go run .

Stop it with Ctrl-C.
`, d.envFile())
}

// askOnce sends the question of --ask and prints the turn.
func (d *devCommand) askOnce(ctx context.Context, term console.Terminal, e standalone.Endpoints) error {
	fmt.Fprintf(term.Out, "The mesh is up at %s: agents %s.\n\n> %s\n\n", e.GRPC, strings.Join(e.Agents, ", "), d.Ask)
	c, conn, err := remote.Server{Addr: e.GRPC}.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = (&render.View{Terminal: term}).Show(false, c.Turn(ctx, &troupev1.OrchestrateRequest{
		Target: d.target(e), Input: &troupev1.OrchestrateRequest_Text{Text: d.Ask},
	}))
	return err
}
