package instances

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
)

// SnapshotFile stores the last known instances in a file. An orchestrator uses it when it starts while the
// registry cannot be reached (guarantee F10).
type SnapshotFile struct {
	Path string
	// Confirm asks the worker of an instance for its state, and reports whether this very instance answered. It
	// must return within about 3 s.
	Confirm func(context.Context, registry.Instance) (registry.Instance, bool)
}

const (
	snapshotMaxAge  = 24 * time.Hour // an older file is not used
	snapshotRefresh = time.Hour      // rewrites the file although nothing changed, so that it does not grow old
	snapshotPause   = time.Second    // minimum time between two writes
	recoverPause    = 5 * time.Second
)

// snapshotDocument is the JSON content of the file.
type snapshotDocument struct {
	Saved time.Time `json:"saved"`
	snapshotContent
}

// snapshotContent is the part of the document that changes with the registry.
type snapshotContent struct {
	Instances []json.RawMessage `json:"instances"`
	// Quarantined lists the quarantined agents. An orchestrator that starts from the file must give them no steps.
	Quarantined []quarantinedAgent `json:"quarantined,omitempty"`
}

type quarantinedAgent struct {
	Agent  string    `json:"agent"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// Sync keeps the file and the cache in step until ctx ends. It writes the file at each change while the cache
// agrees with the registry. While the registry has never answered, it restores the instances that confirm
// themselves from the file, and retries the others. It returns nil.
func (s SnapshotFile) Sync(ctx context.Context, r *Cache) error {
	log := r.log.With(zap.String("snapshot", s.Path))
	var saved []byte
	var written time.Time
	for ctx.Err() == nil {
		now := r.view()
		pause := snapshotRefresh
		switch {
		case now.isReliable():
			text, err := marshalSnapshot(now.instances, now.quarantines)
			if err == nil && (!bytes.Equal(text, saved) || time.Since(written) >= snapshotRefresh) {
				if err = s.write(text); err == nil {
					saved, written = text, time.Now()
				}
			}
			if err != nil {
				log.Warn("the snapshot was not written", zap.Error(err))
			}
			if !sleepUntilChange(ctx, snapshotPause, nil) {
				return nil
			}
		case now.registryAway && now.source != fromRegistry:
			pause = recoverPause
			if stored, quarantines, err := s.read(); err != nil {
				log.Warn("the snapshot cannot be used", zap.Error(err))
			} else {
				r.desired.RestoreQuarantines(quarantines)
				r.restore(s.confirmAll(ctx, slices.DeleteFunc(stored, now.isReady)), len(stored))
			}
		}
		sleepUntilChange(ctx, pause, now.changed)
	}
	return nil
}

// sleepUntilChange waits for d or until changed is closed. It returns false if ctx has ended.
func sleepUntilChange(ctx context.Context, d time.Duration, changed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// cacheView is the part of the cache that a snapshot contains. It also has the facts that decide whether the file
// is written or read.
type cacheView struct {
	source           cacheSource
	registryAway     bool                // the registry cannot be reached
	canRemoveMissing bool                // no missing instance is in doubt, and the desired state is known
	instances        []registry.Instance // includes missing instances that still count as known; ordered by agent and id
	quarantines      []registry.DesiredState
	changed          <-chan struct{}
}

func (c *Cache) view() cacheView {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.shownInstances()
	slices.SortFunc(all, compareKeys)
	return cacheView{
		source: c.source, registryAway: !c.registryAwaySince.IsZero(), canRemoveMissing: c.missing.isDecided() && c.desired.IsKnown(),
		instances: all, quarantines: c.desired.Quarantines(), changed: c.changed,
	}
}

// isReliable reports whether the cache agrees with the registry, so that the snapshot may be written.
func (v cacheView) isReliable() bool {
	return v.source != unfilled && !v.registryAway && v.canRemoveMissing
}

// isReady reports whether the instance is already known to be ready.
func (v cacheView) isReady(in registry.Instance) bool {
	return slices.ContainsFunc(v.instances, func(known registry.Instance) bool {
		return known.Key() == in.Key() && known.State == lifecycle.Ready
	})
}

// restore adds confirmed instances to a cache that the registry has not filled yet. stored is the number of
// instances in the snapshot.
func (c *Cache) restore(confirmed []registry.Instance, stored int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.source == fromRegistry {
		return
	}
	if len(confirmed) == 0 && c.source == unfilled {
		c.log.Warn("no instance of the snapshot answers", zap.Int("instances", stored))
		return
	}
	before := maps.Clone(c.instances)
	for _, in := range confirmed {
		c.instances[in.Key()] = in
	}
	if maps.EqualFunc(before, c.instances, registry.Instance.Equal) {
		return
	}
	c.source = fromSnapshot
	c.log.Warn("the registry is away; dispatching to the instances of the snapshot", zap.Int("instances", len(c.instances)), zap.Int("of", stored))
	c.notifyChange()
}

// marshalSnapshot returns the content of the file, without the time of saving.
func marshalSnapshot(instances []registry.Instance, quarantined []registry.DesiredState) ([]byte, error) {
	texts := make([]json.RawMessage, 0, len(instances))
	for _, in := range instances {
		text, err := instancewire.MarshalInstance(in)
		if err != nil {
			return nil, err
		}
		var same bytes.Buffer // protojson varies its spaces on purpose
		if err := json.Compact(&same, []byte(text)); err != nil {
			return nil, err
		}
		texts = append(texts, same.Bytes())
	}
	out := snapshotContent{Instances: texts}
	for _, d := range quarantined {
		out.Quarantined = append(out.Quarantined, quarantinedAgent{d.Key.Agent, d.Reason, d.Since})
	}
	return json.Marshal(out)
}

// write replaces the file atomically. Only the owner may read the file.
func (s SnapshotFile) write(content []byte) error {
	text := fmt.Appendf(nil, "{\"saved\":%q,%s\n", time.Now().UTC().Format(time.RFC3339), content[1:])
	file, err := os.CreateTemp(filepath.Dir(s.Path), filepath.Base(s.Path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(file.Name(), s.Path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// read returns the instances and the quarantines of the file.
func (s SnapshotFile) read() ([]registry.Instance, []registry.DesiredState, error) {
	text, err := os.ReadFile(s.Path)
	if err != nil {
		return nil, nil, err
	}
	var d snapshotDocument
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	if age := time.Since(d.Saved); age > snapshotMaxAge {
		return nil, nil, fmt.Errorf("%s is %s old; the limit is %s", s.Path, age.Round(time.Minute), snapshotMaxAge)
	}
	all := make([]registry.Instance, 0, len(d.Instances))
	for _, text := range d.Instances {
		in, err := instancewire.UnmarshalInstance(text)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.Path, err)
		}
		all = append(all, in)
	}
	quarantines := make([]registry.DesiredState, 0, len(d.Quarantined))
	for _, q := range d.Quarantined {
		quarantines = append(quarantines, registry.DesiredState{Key: registry.AgentKey(q.Agent), Kind: registry.Quarantine, Reason: q.Reason, Since: q.Since})
	}
	return all, quarantines, nil
}

// confirmAll asks all instances concurrently and returns the ones that confirm themselves.
func (s SnapshotFile) confirmAll(ctx context.Context, stored []registry.Instance) []registry.Instance {
	answers := make([]registry.Instance, len(stored))
	same := make([]bool, len(stored))
	var asking sync.WaitGroup
	for i, in := range stored {
		asking.Go(func() { answers[i], same[i] = s.Confirm(ctx, in) })
	}
	asking.Wait()
	var all []registry.Instance
	for i, in := range answers {
		if same[i] {
			all = append(all, in)
		}
	}
	return all
}
