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
	dir             string // on disk (empty if it is not watched)
	snapshot        *folderSnapshot
	agents          map[string]manifest.Document
	manifests       map[string]bool // names of the manifest files
	workflowNames   []string        // names of the workflows
	workflowsDigest string          // digest of all workflows
	isComplete      bool            // all manifests could be read
}

// loadDeclarations reads the manifests of the folder. It skips a file with errors and returns these errors
// together with the other documents. After an error outside of any file, it returns no documents.
func (c *workerGroup) loadDeclarations(files *folderSnapshot) (declarations, error) {
	docs, err := manifest.Load(files)
	wrong, located := manifestErrors(err)
	d := declarations{dir: c.cfg.Watch, snapshot: files, agents: map[string]manifest.Document{}, manifests: map[string]bool{}, isComplete: err == nil}
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
func (c *workerGroup) reload(ctx, life context.Context) {
	began := time.Now()
	d, err := c.loadDeclarations(newFolderSnapshot(c.cfg.Agents))
	c.logOnce("", err)
	if len(d.agents) == 0 { // an empty folder is more likely a mistake than intended
		if err == nil {
			c.logOnce("", errors.New("the folder declares no agent any more; nothing was changed"))
		}
		return
	}
	if d.isComplete && d.workflowsDigest != c.workflowsDigest {
		c.workflowsDigest = d.workflowsDigest
		c.log.Warn("the workflows have changed; they take effect when the mesh is started again")
	}
	successors := c.makeSuccessors(ctx, d)
	for i, err := range c.startWorkers(ctx, life, successors...) {
		m := successors[i]
		before := c.members[m.agent]
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.logOnce(m.agent, err)
			continue
		case before != nil:
			c.drainInBackground(life, before, "its files have changed")
		}
		c.logOnce(m.agent, nil)
		c.members[m.agent] = m
		c.log.Info("the agent runs with its new declaration", zap.String("agent", m.agent), zap.String("instance", m.id), zap.Duration("took",
			time.Since(began)))
	}
	for name, m := range c.members {
		if _, there := d.agents[name]; !there && d.isComplete {
			delete(c.members, name)
			delete(c.lastErrors, name)
			c.drainInBackground(life, m, "it is no longer declared")
			c.log.Info("the agent is no longer declared; its instance is drained", zap.String("agent", name))
		}
	}
}

// makeSuccessors creates workers for new agents and for agents whose declaration has changed.
func (c *workerGroup) makeSuccessors(ctx context.Context, d declarations) []*member {
	var all []*member
	for name := range d.agents {
		if m := c.members[name]; m != nil && reflect.DeepEqual(m.source, d.newAgentSource(name, m.source.fileNames())) {
			c.logOnce(name, nil)
			continue
		}
		m, err := c.makeWorker(ctx, name, d)
		if err != nil {
			c.logOnce(name, err)
			continue
		}
		all = append(all, m)
	}
	return all
}

// logOnce logs an error of an agent, or of the folder, unless the same error was logged last. A nil error means
// that the problem is solved.
func (c *workerGroup) logOnce(agent string, err error) {
	why := ""
	if err != nil {
		why = strings.TrimPrefix(err.Error(), "--agents: ")
	}
	before := c.lastErrors[agent]
	c.lastErrors[agent] = why
	if why == before {
		return
	}
	log := c.log
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
