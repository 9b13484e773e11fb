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

// declarations are what a folder says.
type declarations struct {
	dir       string // on disk; empty: it is not watched
	files     *reading
	agents    map[string]manifest.Document
	manifests map[string]bool // names of the files
	flows     []string        // names of the workflows
	workflows string          // digest of all of them
	complete  bool            // every manifest could be read
}

// declarations reads the manifests. What is wrong with one of them is returned beside what
// the others say, and hides that file; an error that leaves nothing is returned with nothing.
func (c *crew) declarations(files *reading) (declarations, error) {
	docs, err := manifest.Load(files)
	wrong, located := places(err)
	d := declarations{dir: c.cfg.Watch, files: files, agents: map[string]manifest.Document{}, manifests: map[string]bool{}, complete: err == nil}
	if !located {
		return d, err
	}
	for _, e := range wrong {
		files.hidden[e.File] = true
	}
	for _, doc := range docs {
		d.manifests[doc.File] = true
		switch {
		case files.hidden[doc.File]:
		case doc.Kind == manifest.KindAgent:
			d.agents[doc.Name] = doc
		case doc.Kind == manifest.KindWorkflow:
			d.flows = append(d.flows, doc.Name)
			d.workflows += doc.Name + " " + doc.Digest() + "\n"
		}
	}
	return d, err
}

// places takes what is wrong with a folder apart; ok: all of it is in files.
func places(err error) (all []*manifest.Error, ok bool) {
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

// reload brings the crew to what the folder declares now. What is wrong changes nothing and
// is said; what is right takes effect.
func (c *crew) reload(ctx, life context.Context) {
	began := time.Now()
	d, err := c.declarations(read(c.cfg.Agents))
	c.tell("", err)
	if len(d.agents) == 0 { // nothing is left of it: more likely a mistake than a wish
		if err == nil {
			c.tell("", errors.New("the folder declares no agent any more"))
		}
		return
	}
	if d.complete && d.workflows != c.workflows {
		c.workflows = d.workflows
		c.log.Warn("the workflows have changed; they take effect when the mesh is started again")
	}
	successors := c.successors(ctx, d)
	for i, err := range c.start(ctx, life, successors...) {
		m := successors[i]
		before := c.members[m.agent]
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.tell(m.agent, err)
			continue
		case before != nil:
			c.retire(life, before, "its files have changed")
		}
		c.tell(m.agent, nil)
		c.members[m.agent] = m
		c.log.Info("the agent runs as it is declared now", zap.String("agent", m.agent), zap.String("instance", m.id), zap.Duration("took", time.Since(began)))
	}
	for name, m := range c.members {
		if _, there := d.agents[name]; !there && d.complete {
			delete(c.members, name)
			delete(c.told, name)
			c.retire(life, m, "it is not declared any more")
			c.log.Info("the agent is not declared any more", zap.String("agent", name))
		}
	}
}

// successors makes workers of the agents that are new, or declared otherwise than they run.
func (c *crew) successors(ctx context.Context, d declarations) []*member {
	var all []*member
	for name := range d.agents {
		if m := c.members[name]; m != nil && reflect.DeepEqual(m.source, d.source(name, m.source.names())) {
			c.tell(name, nil)
			continue
		}
		m, err := c.make(ctx, name, d)
		if err != nil {
			c.tell(name, err)
			continue
		}
		all = append(all, m)
	}
	return all
}

// tell says what is wrong with an agent, or with the folder, once; nil: nothing.
func (c *crew) tell(agent string, err error) {
	why := ""
	if err != nil {
		why = strings.TrimPrefix(err.Error(), "--agents: ")
	}
	before := c.told[agent]
	c.told[agent] = why
	if why == before {
		return
	}
	log := c.log
	if agent != "" {
		log = log.With(zap.String("agent", agent))
	}
	if why == "" {
		log.Info("what was wrong is right again")
		return
	}
	for _, line := range slices.Compact(strings.Split(why, "\n")) {
		log.Error(fmt.Sprintf("not reloaded: %s", line))
	}
}
