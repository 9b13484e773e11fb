// Package researchassistant is the declared example: four agents and the workflow that
// lets them answer questions about a folder of documents. It needs no key and no network.
package researchassistant

import "embed"

// FS is the folder: the manifests and the prompts that they name.
//
//go:embed *.yaml prompts
var FS embed.FS
