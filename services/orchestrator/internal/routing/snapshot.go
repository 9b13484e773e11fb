package routing

import (
	"bytes"
	"cmp"
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

// Snapshot is a file with the last known registry, for an orchestrator that starts while
// the registry is away (guarantees F10).
type Snapshot struct {
	Path string
	// Confirm asks the worker of an instance how it is, and reports whether it is still the
	// same one. It must return within about 3 s.
	Confirm func(context.Context, registry.Instance) (registry.Instance, bool)
}

const (
	snapshotAge     = 24 * time.Hour // of a file, at most, to be used
	snapshotRefresh = time.Hour      // so that a file does not age while nothing changes
	snapshotPause   = time.Second    // between two writes, and
	recallPause     = 5 * time.Second
)

// document is what is in the file.
type document struct {
	Saved time.Time `json:"saved"`
	known
}

// known is what it tells.
type known struct {
	Instances []json.RawMessage `json:"instances"`
	// Quarantined are agents that are shut out. Whoever starts from the file must know.
	Quarantined []shutOut `json:"quarantined,omitempty"`
}

// shutOut is an agent that is quarantined.
type shutOut struct {
	Agent  string    `json:"agent"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// KeepSnapshot writes the file at each change while the registry is there, and believed.
// While it is away and was never there, the roster takes those instances of the file that
// confirm themselves, once there is one, and asks the others again. It returns nil when ctx
// ends.
func (r *Roster) KeepSnapshot(ctx context.Context, s Snapshot) error {
	log := r.log.With(zap.String("snapshot", s.Path))
	var saved []byte
	var written time.Time
	for ctx.Err() == nil {
		now := r.view()
		pause := snapshotRefresh
		switch {
		case now.listed && !now.away && now.settled:
			text, err := marshal(now.known, now.quarantined)
			if err == nil && (!bytes.Equal(text, saved) || time.Since(written) >= snapshotRefresh) {
				if err = s.write(text); err == nil {
					saved, written = text, time.Now()
				}
			}
			if err != nil {
				log.Warn("the snapshot was not written", zap.Error(err))
			}
			if !wait(ctx, snapshotPause, nil) {
				return nil
			}
		case now.away && (!now.listed || now.recalled):
			pause = recallPause
			if stored, out, err := s.read(); err != nil {
				log.Warn("the snapshot cannot be used", zap.Error(err))
			} else {
				r.remember(out)
				r.recall(s.confirmed(ctx, slices.DeleteFunc(stored, now.ready)), len(stored))
			}
		}
		wait(ctx, pause, now.changed)
	}
	return nil
}

// wait reports whether ctx goes on.
func wait(ctx context.Context, d time.Duration, changed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// view is what a snapshot needs to know of the roster.
type view struct {
	listed, away, recalled bool
	settled                bool                // everybody who vanished was asked, and the registry is believed
	known                  []registry.Instance // also those that vanished and still answer; by agent and id
	changed                <-chan struct{}
	quarantined            []registry.Desire
}

func (r *Roster) view() view {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all()
	slices.SortFunc(all, byKey)
	out := slices.SortedFunc(maps.Values(r.quarantined), func(a, b registry.Desire) int { return cmp.Compare(a.Key.Agent, b.Key.Agent) })
	return view{r.listed, !r.away.IsZero(), r.recalled, r.gone.settled() && !r.unheard, all, r.changed, out}
}

// ready reports whether the instance is known to take steps.
func (v view) ready(in registry.Instance) bool {
	return slices.ContainsFunc(v.known, func(known registry.Instance) bool {
		return known.Key() == in.Key() && known.State == lifecycle.Ready
	})
}

// remember takes the agents that are shut out, while nobody else told what operators want.
func (r *Roster) remember(out []shutOut) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.unheard {
		return
	}
	r.unheard = false
	for _, s := range out {
		key := registry.Whole(s.Agent)
		r.desires[key] = registry.Desire{Key: key, Want: registry.Quarantine, Reason: s.Reason, Since: s.Since}
	}
	r.tell()
}

// recall fills a roster that the registry has not filled yet.
func (r *Roster) recall(confirmed []registry.Instance, of int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listed && !r.recalled {
		return
	}
	if len(confirmed) == 0 && !r.listed {
		r.log.Warn("no instance of the snapshot answers", zap.Int("instances", of))
		return
	}
	before := maps.Clone(r.instances)
	for _, in := range confirmed {
		r.instances[in.Key()] = in
	}
	if maps.EqualFunc(before, r.instances, registry.Instance.Equal) {
		return
	}
	r.listed, r.recalled = true, true
	r.log.Warn("the registry is away; serving from the snapshot", zap.Int("instances", len(r.instances)), zap.Int("of", of))
	r.tell()
}

// marshal is what the file holds, but for when it was saved.
func marshal(instances []registry.Instance, quarantined []registry.Desire) ([]byte, error) {
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
	out := known{Instances: texts}
	for _, d := range quarantined {
		out.Quarantined = append(out.Quarantined, shutOut{d.Key.Agent, d.Reason, d.Since})
	}
	return json.Marshal(out)
}

// write replaces the file in one step; nobody but its owner may read it.
func (s Snapshot) write(known []byte) error {
	text := fmt.Appendf(nil, "{\"saved\":%q,%s\n", time.Now().UTC().Format(time.RFC3339), known[1:])
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

func (s Snapshot) read() ([]registry.Instance, []shutOut, error) {
	text, err := os.ReadFile(s.Path)
	if err != nil {
		return nil, nil, err
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	if age := time.Since(d.Saved); age > snapshotAge {
		return nil, nil, fmt.Errorf("%s is %s old; at most %s may be", s.Path, age.Round(time.Minute), snapshotAge)
	}
	all := make([]registry.Instance, 0, len(d.Instances))
	for _, text := range d.Instances {
		in, err := instancewire.UnmarshalInstance(text)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.Path, err)
		}
		all = append(all, in)
	}
	return all, d.Quarantined, nil
}

// confirmed asks all at once.
func (s Snapshot) confirmed(ctx context.Context, known []registry.Instance) []registry.Instance {
	answers := make([]registry.Instance, len(known))
	same := make([]bool, len(known))
	var asking sync.WaitGroup
	for i, in := range known {
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
