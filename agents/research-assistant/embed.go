// Package researchassistant contains a declarative example: four agents and a workflow that answer questions about
// a folder of documents. It needs no API key and no network.
package researchassistant

import "embed"

// FS is the folder: the manifests and the prompts that they name.
//
//go:embed *.yaml prompts
var FS embed.FS
