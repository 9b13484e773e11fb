package turnstate

import (
	"time"

	"github.com/troupe-dev/troupe/internal/attachment"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// maxGrowing is how many artifacts a turn, or a call of a tool, may write in pieces at the same time.
const maxGrowing = 8

// An update is due when this much was added, or when this much time has passed and the artifact has grown by a sixteenth. So
// one that is written in small pieces, however slowly, does not flood the trace.
const (
	updateStep     = 4 << 10 // bytes, as long as updates have the content
	largeStep      = 1 << 20 // bytes, from then on
	updateInterval = 200 * time.Millisecond
)

// Growing holds the artifacts that are written in pieces (LP-44). It is not safe for concurrent use.
type Growing struct{ artifacts map[string]*growingArtifact }

type growingArtifact struct {
	content    []byte
	reported   int // bytes that updates have reported
	reportedAt time.Time
	started    bool
}

// Append adds a piece to an artifact. It returns the update to emit, or nil if the update waits for more. With the last
// piece it returns the whole content, and forgets the artifact.
func (g *Growing) Append(name, mediaType string, piece []byte, last bool) (update *event.ArtifactUpdate, content []byte, _ error) {
	const op = "hook.AppendArtifact"
	if err := attachment.CheckName(op, name); err != nil {
		return nil, nil, err
	}
	a := g.artifacts[name]
	if a == nil {
		if len(g.artifacts) >= maxGrowing {
			return nil, nil, failure.Newf(failure.ResourceQuota, op, "artifact %q: %d others are not complete; complete one first", name, maxGrowing)
		}
		if g.artifacts == nil {
			g.artifacts = map[string]*growingArtifact{}
		}
		a = &growingArtifact{}
		g.artifacts[name] = a
	}
	if len(a.content)+len(piece) > attachment.MaxArtifactBytes {
		delete(g.artifacts, name)
		return nil, nil, failure.Newf(failure.UserInvalidInput, op, "artifact %q: %d bytes are too many; an artifact has at most %d, so begin another one",
			name, len(a.content)+len(piece), attachment.MaxArtifactBytes)
	}
	a.content = append(a.content, piece...)
	if last {
		delete(g.artifacts, name)
	}
	if !last && a.started && !a.isDue() {
		return nil, nil, nil
	}
	update = &event.ArtifactUpdate{Name: name, MediaType: mediaType, Size: int64(len(a.content)), Append: a.started, Complete: last}
	if len(a.content) <= event.MaxUpdateBytes {
		update.Data = append([]byte{}, a.content[a.reported:]...)
	}
	a.reported, a.reportedAt, a.started = len(a.content), time.Now(), true
	return update, a.content, nil
}

// isDue reports whether an update should be emitted.
func (a *growingArtifact) isDue() bool {
	added := len(a.content) - a.reported
	if len(a.content) > event.MaxUpdateBytes {
		return added >= largeStep || a.reported <= event.MaxUpdateBytes
	}
	return added >= updateStep || added > a.reported/16 && time.Since(a.reportedAt) >= updateInterval
}
