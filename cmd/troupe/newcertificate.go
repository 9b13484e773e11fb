package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/identity"
	"github.com/troupe-dev/troupe/pkg/manifest"
	"github.com/troupe-dev/troupe/services/standalone"
)

type newCertificate struct {
	Agent   string `arg:"" help:"Name of the agent that the worker hosts."`
	DataDir string `help:"Folder for the data of the mesh, as of troupe dev." default:".troupe" env:"TROUPE_DATA_DIR" type:"path"`
}

// Help is the long help of the command.
func (newCertificate) Help() string {
	return `It prints the settings of the worker, for its environment. Workers in Go need none of this.

Example: env $(cat .troupe/mesh.env) $(troupe new certificate words) npm start`
}

// Run writes the files, over those that are there.
func (n *newCertificate) Run(term terminal) error {
	if err := manifest.CheckName(n.Agent); err != nil {
		return failure.Newf(failure.UserInvalidInput, "troupe new certificate", "an agent cannot be named %v", err)
	}
	folder := standalone.DevCA(n.DataDir)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) { // a CA of its own would be trusted by nobody
		return fmt.Errorf("no mesh has run with --data-dir %s; start troupe dev first", n.DataDir)
	}
	ca, err := identity.OpenCA(folder)
	if err != nil {
		return err
	}
	made, err := ca.Files(identity.Worker, n.Agent)
	if err != nil {
		return err
	}
	fmt.Fprintf(term.out, "TROUPE_TLS_CERT=%s\nTROUPE_TLS_KEY=%s\nTROUPE_TLS_CA=%s\n", made.Cert, made.Key, made.CA)
	return nil
}
