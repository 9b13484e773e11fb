// Package trial runs a test with a change of the code, and tells whether the test noticed it.
package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/test/overlay"
)

// Verdict is what a test made of a change.
type Verdict string

// The verdicts. Only Killed proves a test.
const (
	Killed      Verdict = "killed"      // the test failed
	Survived    Verdict = "survived"    // the test passed
	Unbuildable Verdict = "unbuildable" // the changed code does not compile, or the snippet is not there
	Panicked    Verdict = "panicked"    // the changed code panicked, which any test would notice
	Hung        Verdict = "hung"        // the test did not end in time
	Missing     Verdict = "missing"     // there is no such test
)

// timeout bounds a test. The tests that prove a clause take seconds.
const timeout = 3 * time.Minute

// Trial is one change and the tests that should notice it.
type Trial struct {
	Root    string         // root folder of the repository
	Change  overlay.Change // the change (its zero value changes nothing)
	Package string         // package of the tests, relative to the root
	Test    string         // name of the test, with subtests after slashes (empty means all tests of the package)
}

// Run runs the trial. The second result is the output that explains the verdict. An error means that the trial itself could
// not be made.
func (t Trial) Run(ctx context.Context) (Verdict, string, error) {
	args := []string{"test", "-count=1", "-vet=off", "-failfast", "-timeout", timeout.String()}
	if t.Change.File != "" {
		folder, err := os.MkdirTemp("", "mutant")
		if err != nil {
			return "", "", err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		file, err := overlay.Write(t.Root, folder, []overlay.Change{t.Change})
		if err != nil {
			return Unbuildable, err.Error(), nil
		}
		args = append(args, "-overlay", file)
	}
	if t.Test != "" {
		args = append(args, "-run", runPattern(t.Test))
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+t.Package)...)
	cmd.Dir = t.Root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && (!failed || ctx.Err() != nil) {
		return "", "", fmt.Errorf("go test %s: %w", t.Package, errors.Join(err, ctx.Err()))
	}
	return verdict(out.String(), err == nil), out.String(), nil
}

// panicLine is how the Go runtime reports a panic that ends a test binary.
var panicLine = regexp.MustCompile(`(?m)^(panic: |fatal error: )`)

// bubblePanic is how a bubble ends when a test that failed has left goroutines behind.
const bubblePanic = "panic: deadlock: main bubble goroutine has exited but blocked goroutines remain"

func verdict(out string, passed bool) Verdict {
	switch {
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return Unbuildable
	case strings.Contains(out, "no tests to run") || strings.Contains(out, "[no test files]"):
		return Missing
	case passed:
		return Survived
	case strings.Contains(out, "panic: test timed out"):
		return Hung
	case !strings.Contains(out, bubblePanic) && panicLine.MatchString(beforeFailure(out)):
		return Panicked
	}
	return Killed
}

// beforeFailure returns the output up to the first assertion that failed. A panic after it may be its consequence.
func beforeFailure(out string) string {
	out, _, _ = strings.Cut(out, "Error Trace:")
	return out
}

// runPattern returns the value of the flag -run that selects exactly the test with this name.
func runPattern(test string) string {
	var parts []string
	for part := range strings.SplitSeq(test, "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(strings.ReplaceAll(part, " ", "_"))+"$")
	}
	return strings.Join(parts, "/")
}
