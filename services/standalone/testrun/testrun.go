// Package testrun runs the tests that a folder declares next to its agents, in documents of kind Test. A test is a
// conversation with an agent inside this process, without a mesh. A script can replace the models of the agent.
// Everything else is as declared.
package testrun

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	workers "github.com/troupe-dev/troupe/services/worker/app"
)

// Test is the spec of a document of kind Test.
type Test struct {
	Agent string  `yaml:"agent"` // may be omitted when the folder declares one agent
	Model []Reply `yaml:"model"` // replies of the models, in order (if empty, the declared models are called)
	Turns []Turn  `yaml:"turns"`
}

// Reply is one scripted reply of a model. Exactly one field is set.
type Reply struct {
	Say  string    `yaml:"say"`
	Call yaml.Node `yaml:"call"` // {tool: arguments}, one or several
	Fail string    `yaml:"fail"` // error that the model returns
}

// Turn is one user message with the expected result.
type Turn struct {
	Say  string `yaml:"say"`
	Want Want   `yaml:"want"`
}

// Want is the expected result of a turn. Omitted fields are not checked. But a turn fails the test if it fails and
// Fails is not set.
type Want struct {
	Text     string   `yaml:"text"`     // the answer contains it
	Tools    []string `yaml:"tools"`    // tools that were called, in order; [] means none
	Found    string   `yaml:"found"`    // the result of one of the tools contains it
	Warnings []string `yaml:"warnings"` // reasons of the warnings, in order; [] means none
	Fails    string   `yaml:"fails"`    // the error of the turn contains it
}

// Result holds the errors and the duration of one test.
type Result struct {
	Name   string
	Took   time.Duration
	Errors []error // each with file and line (empty if the test passed)
}

// Config says which tests Run runs: the documents of kind Test in a folder, and what their agents get.
type Config struct {
	Folder fs.FS
	Docs   string      // folder for search_documents (empty means the declared one)
	Log    *zap.Logger // log of the agents
}

// Run runs all tests of the folder in order, and calls report after each. It returns an error if there is nothing
// to run, because the manifests are invalid or declare no test.
func Run(ctx context.Context, cfg Config, report func(Result)) error {
	docs, err := manifest.Load(cfg.Folder)
	if err != nil {
		return err
	}
	tests := manifest.Select(docs, manifest.KindTest)
	if len(tests) == 0 {
		return errors.New("the folder declares no test; want a document of kind Test")
	}
	for _, doc := range tests {
		began := time.Now()
		wrong := run(ctx, cfg, doc)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		report(Result{Name: doc.Name, Took: time.Since(began), Errors: wrong})
	}
	return nil
}

func run(ctx context.Context, cfg Config, doc manifest.Document) []error {
	var test Test
	if err := doc.Decode(&test); err != nil {
		return []error{err}
	}
	if len(test.Turns) == 0 {
		return []error{doc.PlaceOf("turns").Errorf("turns: missing; add what the user says")}
	}
	replies, err := scriptedReplies(doc, test.Model)
	if err != nil {
		return []error{err}
	}
	var standIn llm.Model
	var model *scripted.Model
	if len(replies) > 0 {
		model = scripted.New(replies...)
		standIn = model
	}
	a, err := workers.BuildAgent(ctx, cfg.Log, workers.Config{Agent: test.Agent, Docs: cfg.Docs}, cfg.Folder, standIn)
	if err != nil {
		return []error{errors.New(strings.TrimPrefix(failure.PlainMessage(err), "--agents: "))}
	}
	var wrong []error
	if fatal := runTest(ctx, func(t *testbed) {
		session := agenttest.NewSession(t, a)
		for i, turn := range test.Turns {
			wrong = append(wrong, turn.Want.check(doc, i, session.Try(turn.Say))...)
		}
	}); fatal != "" {
		wrong = append(wrong, doc.PlaceOf().Errorf("%s", fatal))
	}
	if model != nil && len(wrong) == 0 {
		if asked := len(model.Requests()); asked < len(replies) {
			wrong = append(wrong, doc.PlaceOf("model",
				asked).Errorf("model[%d]: the agent did not ask for this reply; remove it, or check the earlier ones", asked))
		}
	}
	return wrong
}

// check returns one error for each field of the turn that differs from the expected value.
func (w Want) check(doc manifest.Document, i int, got agenttest.Turn) (wrong []error) {
	expect := func(ok bool, field, format string, args ...any) {
		if !ok {
			wrong = append(wrong, doc.PlaceOf("turns", i, "want", field).Errorf("turns[%d].want.%s: %s", i, field, fmt.Sprintf(format, args...)))
		}
	}
	switch {
	case got.Err != nil && w.Fails == "":
		return []error{doc.PlaceOf("turns", i).Errorf("turns[%d]: %s", i, failure.PlainMessage(got.Err))}
	case got.Err != nil:
		expect(strings.Contains(failure.PlainMessage(got.Err), w.Fails), "fails", "it failed with %q; want %q in it", failure.PlainMessage(got.Err), w.Fails)
	case w.Fails != "":
		expect(false, "fails", "it did not fail, and answered %q; want a failure with %q in it", got.Text, w.Fails)
	}
	var warnings, results []string
	for _, w := range got.Warnings {
		warnings = append(warnings, w.Reason)
	}
	found := w.Found == ""
	for _, e := range got.Events {
		if done, ok := e.Payload.(event.ToolFinished); ok {
			results = append(results, strconv.Quote(done.Result))
			found = found || strings.Contains(done.Result, w.Found)
		}
	}
	expect(strings.Contains(got.Text, w.Text), "text", "the answer is %q; want %q in it", got.Text, w.Text)
	expect(w.Tools == nil || slices.Equal(got.Tools, w.Tools), "tools", "called were %s; want %s", joinOrNone(got.Tools), joinOrNone(w.Tools))
	expect(found, "found", "the tools gave %s; want %q in one of them", joinOrNone(results), w.Found)
	expect(w.Warnings == nil || slices.Equal(warnings, w.Warnings), "warnings", "given were %s; want %s", joinOrNone(warnings), joinOrNone(w.Warnings))
	return wrong
}

func joinOrNone(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
