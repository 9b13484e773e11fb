package standalone

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/manifest"
)

// declarations holds the documents of a folder, and the agents and workflows that they declare.
type declarations struct {
	dir             string // path of the folder on disk (empty if it is not watched)
	snapshot        *readOnceFS
	agents          map[string]manifest.Document
	manifests       map[string]bool // names of the manifest files
	workflowNames   []string        // names of the workflows
	workflowsDigest string          // digest of all workflows
	isComplete      bool            // all manifests could be read
}

// loadDeclarations reads the manifests of the folder. It skips a file with errors and returns these errors
// together with the other documents. After an error outside of any file, it returns no documents.
func (g *workerGroup) loadDeclarations(files *readOnceFS) (declarations, error) {
	docs, err := manifest.Load(files)
	wrong, located := manifestErrors(err)
	d := declarations{dir: g.cfg.Watch, snapshot: files, agents: map[string]manifest.Document{}, manifests: map[string]bool{}, isComplete: err == nil}
	if !located {
		return d, err
	}
	for _, e := range wrong {
		files.invalid[e.File] = true
	}
	for _, doc := range docs {
		d.manifests[doc.File] = true
		switch {
		case files.invalid[doc.File]:
		case doc.Kind == manifest.KindAgent:
			d.agents[doc.Name] = doc
		case doc.Kind == manifest.KindWorkflow:
			d.workflowNames = append(d.workflowNames, doc.Name)
			d.workflowsDigest += doc.Name + " " + doc.Digest() + "\n"
		}
	}
	return d, err
}

// manifestErrors splits the error of a folder by file. It also reports whether all errors belong to a file.
func manifestErrors(err error) (all []*manifest.Error, ok bool) {
	each := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		each = joined.Unwrap()
	}
	for _, err := range each {
		e, located := errors.AsType[*manifest.Error](err)
		if !located && err != nil {
			return nil, false
		}
		if located {
			all = append(all, e)
		}
	}
	return all, true
}

// reload applies the current content of the folder. Agents with errors keep running unchanged, and the errors are
// logged. All other changes take effect.
func (g *workerGroup) reload(ctx, life context.Context) {
	began := time.Now()
	d, err := g.loadDeclarations(newReadOnceFS(g.cfg.Agents))
	g.logOnce("", err)
	if len(d.agents) == 0 { // an empty folder is more likely a mistake than intended
		if err == nil {
			g.logOnce("", errors.New("the folder declares no agent any more; nothing was changed"))
		}
		return
	}
	if d.isComplete && d.workflowsDigest != g.workflowsDigest {
		g.workflowsDigest = d.workflowsDigest
		g.log.Warn("the workflows have changed; they take effect when the mesh is started again")
	}
	successors := g.makeSuccessors(ctx, d)
	for i, err := range g.startWorkers(ctx, life, successors...) {
		m := successors[i]
		before := g.members[m.agent]
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			g.logOnce(m.agent, err)
			continue
		case before != nil:
			g.drainInBackground(life, before, "its files have changed")
		}
		g.logOnce(m.agent, nil)
		g.members[m.agent] = m
		g.log.Info("the agent runs with its new declaration", zap.String("agent", m.agent), zap.String("instance", m.id), zap.Duration("took",
			time.Since(began)))
	}
	for name, m := range g.members {
		if _, there := d.agents[name]; !there && d.isComplete {
			delete(g.members, name)
			delete(g.lastErrors, name)
			g.drainInBackground(life, m, "it is no longer declared")
			g.log.Info("the agent is no longer declared; its instance is drained", zap.String("agent", name))
		}
	}
}

// makeSuccessors creates workers for new agents and for agents whose declaration has changed.
func (g *workerGroup) makeSuccessors(ctx context.Context, d declarations) []*member {
	var all []*member
	for name := range d.agents {
		if m := g.members[name]; m != nil && reflect.DeepEqual(m.source, d.newAgentSource(name, m.source.fileNames())) {
			g.logOnce(name, nil)
			continue
		}
		m, err := g.makeWorker(ctx, name, d)
		if err != nil {
			g.logOnce(name, err)
			continue
		}
		all = append(all, m)
	}
	return all
}

// logOnce logs an error of an agent, or of the folder, unless the same error was logged last. A nil error means
// that the problem is solved.
func (g *workerGroup) logOnce(agent string, err error) {
	why := ""
	if err != nil {
		why = strings.TrimPrefix(err.Error(), "--agents: ")
	}
	before := g.lastErrors[agent]
	g.lastErrors[agent] = why
	if why == before {
		return
	}
	log := g.log
	if agent != "" {
		log = log.With(zap.String("agent", agent))
	}
	if why == "" {
		log.Info("the declaration is valid again")
		return
	}
	for _, line := range slices.Compact(strings.Split(why, "\n")) {
		log.Error(fmt.Sprintf("not reloaded: %s", line))
	}
}
