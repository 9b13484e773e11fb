package pkg_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/architecture.md and docs/packages.md anew")

const (
	architecture = "../docs/architecture.md"
	packagesPage = "../docs/packages.md"
)

// TestLayers_AreDocumented compares the table of layers with docs/architecture.md.
func TestLayers_AreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| Layer | Packages |\n|---|---|\n")
	for _, l := range layers {
		fmt.Fprintf(&table, "| %s | %s |\n", l.name, strings.Join(strings.Fields(l.packages), ", "))
	}
	table.WriteString("\nOnly these packages may use a technology directly:\n\n| Technology | Packages |\n|---|---|\n")
	for _, c := range restrictedImports {
		if !strings.HasPrefix(c.technology, module) {
			fmt.Fprintf(&table, "| %s | %s |\n", c.technology, strings.Join(strings.Fields(c.packages), ", "))
		}
	}
	requireDocumented(t, architecture, "layers", table.String())
}

// TestPublic_IsDocumented compares the list of public packages with docs/packages.md.
func TestPublic_IsDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| Public package | Why |\n|---|---|\n")
	for _, p := range publicPackages {
		fmt.Fprintf(&table, "| %s | %s |\n", p.path, p.reason)
	}
	requireDocumented(t, packagesPage, "public", table.String())
}

// TestMessages_AreDocumented compares two lists in docs/architecture.md with the code: the packages that use
// generated messages, and those that convert messages to Go values.
func TestMessages_AreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| May import | Packages |\n|---|---|\n")
	for _, c := range restrictedImports {
		if local, ok := strings.CutPrefix(c.technology, module); ok && (local == "pkg/gen" || local == "internal/wire") {
			fmt.Fprintf(&table, "| %s | %s |\n", local, strings.Join(strings.Fields(c.packages), ", "))
		}
	}
	requireDocumented(t, architecture, "messages", table.String())
}

// requireDocumented compares the generated part of a page with the given text, or rewrites it.
func requireDocumented(t *testing.T, page, part, want string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "<!-- "+part+" -->\n")
	have, after, ended := strings.Cut(rest, "<!-- end -->")
	if !ok || !ended {
		t.Fatalf("%s has no part between <!-- %s --> and <!-- end -->", page, part)
	}
	if have == want {
		return
	}
	if !*update {
		t.Fatalf("the part %s of %s is stale; run make docs", part, page)
	}
	if err := os.WriteFile(page, []byte(before+"<!-- "+part+" -->\n"+want+"<!-- end -->"+after), 0o600); err != nil {
		t.Fatal(err)
	}
}
