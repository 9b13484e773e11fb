package operate

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry/etcdauth"
	"github.com/troupe-dev/troupe/services/standalone"
)

type provisionCommands struct {
	Etcd provisionEtcdCommand `cmd:"" help:"Create the users and roles of the mesh in etcd, and turn on its authentication."`
}

type provisionEtcdCommand struct {
	Agents  console.Folder `help:"Folder with the YAML files that declare the agents (empty means --agent names all)." env:"TROUPE_AGENTS" placeholder:"DIR"`
	Agent   []string       `help:"Name of an agent that no file declares, such as one in Go. May be repeated." placeholder:"NAME"`
	Etcd    []string       `help:"Addresses of etcd, https://host:port." default:"https://127.0.0.1:2379" env:"TROUPE_ETCD"`
	Timeout time.Duration  `help:"How long etcd may take." default:"30s"`

	Security rootCredentials `embed:"" prefix:"etcd-"`
}

// rootCredentials holds the flags for etcd's root certificate, for a command that is not a process of the mesh.
type rootCredentials struct {
	CA   string `name:"ca" help:"PEM file with the CAs of etcd (empty means the system's)." env:"TROUPE_ETCD_CA" type:"path" default:"" placeholder:"FILE"`
	Cert string `name:"cert" help:"PEM file with the certificate of the etcd user root." env:"TROUPE_ETCD_CERT" type:"path" default:"" placeholder:"FILE"`
	Key  string `name:"key" help:"PEM file with its key." env:"TROUPE_ETCD_KEY" type:"path" default:"" placeholder:"FILE"`
}

// Help implements kong.HelpProvider.
func (provisionEtcdCommand) Help() string {
	return `Each user is known by the common name of its certificate: orchestrator, memory, worker/AGENT, and root,
whose certificate this command needs. It changes nothing that is set up already: run it again when agents are added. It removes no user.

Example: troupe provision etcd --agents ./agents --etcd https://etcd:2379 --etcd-ca ca.crt --etcd-cert root.crt --etcd-key root.key`
}

// Run creates the users and roles in etcd.
func (p *provisionEtcdCommand) Run(ctx context.Context, term console.Terminal) error {
	agents := p.Agent
	if p.Agents != "" {
		declared, err := standalone.Agents(os.DirFS(string(p.Agents)))
		if err != nil {
			return err
		}
		agents = append(agents, declared...)
	}
	creds, err := etcdregistry.Security(p.Security).Credentials(p.Etcd, nil, zap.NewNop())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	others, err := etcdauth.ConnectAndProvision(ctx, creds, p.Etcd, agents)
	if err != nil {
		return err
	}
	var names []string
	for _, u := range etcdauth.Users(agents) {
		names = append(names, u.Name)
	}
	fmt.Fprintf(term.Out, "etcd knows %s.\n", strings.Join(names, ", "))
	if len(others) > 0 {
		fmt.Fprintf(term.Out, "It also knows %s, which no file declares; remove each with etcdctl user delete.\n", console.JoinNames(others))
	}
	return nil
}
