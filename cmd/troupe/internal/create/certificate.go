package create

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry/etcdauth"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/standalone"
)

// newCertificateCommand creates one of two certificates: a worker's, together with its user in etcd, or an
// admin's.
type newCertificateCommand struct {
	Agent   string `arg:"" optional:"" help:"Name of the agent that the worker hosts."`
	Admin   string `help:"Make the certificate of an admin with this name instead, who may call workers directly." placeholder:"NAME"`
	DataDir string `help:"Folder for the data of the mesh, as of troupe dev." default:".troupe" env:"TROUPE_DATA_DIR" type:"path"`
}

// Help implements kong.HelpProvider.
func (newCertificateCommand) Help() string {
	return `It prints the settings that name the files, for the environment of the worker. Workers in Go need none of this.
With --admin the certificate is one with which an operator may call workers directly.

Example: env $(cat .troupe/mesh.env) $(troupe new certificate words) npm start`
}

// Run writes the certificate and its key, over files from an earlier run, and prints how programs find them. For a
// worker it also creates the user in etcd, if etcd runs.
func (n *newCertificateCommand) Run(ctx context.Context, term console.Terminal) error {
	const op = "troupe new certificate"
	if (n.Agent == "") == (n.Admin == "") {
		return failure.New(failure.UserInvalidInput, op, "name an agent, or an admin with --admin")
	}
	role, name := identity.Worker, n.Agent
	if n.Admin != "" {
		role, name = identity.Admin, n.Admin
	}
	if err := manifest.CheckName(name); err != nil {
		return failure.Newf(failure.UserInvalidInput, op, "an agent or admin cannot be named %v", err)
	}
	folder := standalone.DevCA(n.DataDir)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) { // no program would trust a new CA
		return fmt.Errorf("no mesh has run with --data-dir %s; start troupe dev first", n.DataDir)
	}
	ca, err := identity.OpenCA(folder)
	if err != nil {
		return err
	}
	made, err := ca.WriteFiles(role, name)
	if err != nil {
		return err
	}
	if role == identity.Admin {
		return n.printEnvironment(term, made)
	}
	if err := n.allowInEtcd(ctx, folder); err != nil { // the files are valid and are kept
		fmt.Fprintf(term.Err, "The etcd of the mesh in %s does not know the worker yet: run this again while troupe dev runs. (%v)\n", n.DataDir, err)
	}
	return n.printEnvironment(term, made)
}

// printEnvironment prints the environment variables that tell a program where the files are.
func (n *newCertificateCommand) printEnvironment(term console.Terminal, made identity.Config) error {
	_, err := fmt.Fprintf(term.Out, "TROUPE_TLS_CERT=%s\nTROUPE_TLS_KEY=%s\nTROUPE_TLS_CA=%s\n", made.Cert, made.Key, made.CA)
	return err
}

// allowInEtcd creates the etcd user that may register instances of the agent.
func (n *newCertificateCommand) allowInEtcd(ctx context.Context, devCA string) error {
	env, err := os.ReadFile(filepath.Join(n.DataDir, "mesh.env"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(env)) {
		if etcd, ok := strings.CutPrefix(strings.TrimSpace(line), "TROUPE_ETCD="); ok {
			return etcdauth.ProvisionWithDevCA(ctx, devCA, strings.Split(etcd, ","), n.Agent)
		}
	}
	return errors.New("its mesh.env names no etcd")
}
