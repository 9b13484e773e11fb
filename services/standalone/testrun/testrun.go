// Package testrun runs the tests that a folder declares beside its agents, in documents of
// kind Test: conversations with an agent in this process, without a mesh. A script takes the
// place of its models, if the test has one; everything else of the agent is as it is declared.
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
	Agent string  `yaml:"agent"` // may be left out when the folder declares one
	Model []Reply `yaml:"model"` // what the models say, one after the other; none: the declared ones are asked
	Turns []Turn  `yaml:"turns"`
}

// Reply is one reply of a model: one of the fields.
type Reply struct {
	Say  string    `yaml:"say"`
	Call yaml.Node `yaml:"call"` // {tool: arguments}, or several of them
	Fail string    `yaml:"fail"` // why the model does not answer
}

// Turn is what the user says, and what shall come of it.
type Turn struct {
	Say  string `yaml:"say"`
	Want Want   `yaml:"want"`
}

// Want is what a turn shall lead to. What is left out may be anything, but a turn fails only
// when that is wanted.
type Want struct {
	Text     string   `yaml:"text"`     // is in the answer
	Tools    []string `yaml:"tools"`    // were called, in order; [] means none
	Found    string   `yaml:"found"`    // is in what one of the tools gave
	Warnings []string `yaml:"warnings"` // reasons of those that were given, in order; [] means none
	Fails    string   `yaml:"fails"`    // is in what the turn fails with
}

// Result is how a test went.
type Result struct {
	Name   string
	Took   time.Duration
	Errors []error // each with file and line; empty: it passed
}

// Config says what is tested.
type Config struct {
	Folder fs.FS
	Docs   string      // folder for search_documents; empty: the declared one
	Log    *zap.Logger // of the agents
}

// Run runs all tests of the folder, in order, and tells how each went. An error means that
// there was nothing to run: the manifests are wrong, or declare no test.
func Run(ctx context.Context, cfg Config, tell func(Result)) error {
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
		tell(Result{Name: doc.Name, Took: time.Since(began), Errors: wrong})
	}
	return nil
}

func run(ctx context.Context, cfg Config, doc manifest.Document) []error {
	var test Test
	if err := doc.Decode(&test); err != nil {
		return []error{err}
	}
	if len(test.Turns) == 0 {
		return []error{doc.At("turns").Errorf("turns is missing: say something")}
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
		return []error{errors.New(strings.TrimPrefix(failure.Plain(err), "--agents: "))}
	}
	var wrong []error
	if fatal := runTest(ctx, func(t *testbed) {
		session := agenttest.NewSession(t, a)
		for i, turn := range test.Turns {
			wrong = append(wrong, turn.Want.check(doc, i, session.Try(turn.Say))...)
		}
	}); fatal != "" {
		wrong = append(wrong, doc.At().Errorf("%s", fatal))
	}
	if model != nil && len(wrong) == 0 {
		if asked := len(model.Requests()); asked < len(replies) {
			wrong = append(wrong, doc.At("model", asked).Errorf("model[%d]: nobody asked for this reply", asked))
		}
	}
	return wrong
}

// check says in what the turn is not what is wanted.
func (w Want) check(doc manifest.Document, i int, got agenttest.Turn) (wrong []error) {
	expect := func(ok bool, field, format string, args ...any) {
		if !ok {
			wrong = append(wrong, doc.At("turns", i, "want", field).Errorf("turns[%d].want.%s: %s", i, field, fmt.Sprintf(format, args...)))
		}
	}
	switch {
	case got.Err != nil && w.Fails == "":
		return []error{doc.At("turns", i).Errorf("turns[%d]: %s", i, failure.Plain(got.Err))}
	case got.Err != nil:
		expect(strings.Contains(failure.Plain(got.Err), w.Fails), "fails", "it failed with %q; want %q in it", failure.Plain(got.Err), w.Fails)
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
