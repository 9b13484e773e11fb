package differential

import (
	"context"
	"fmt"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
)

// artifactTexts has the contents of artifacts. The last one has two pieces.
var artifactTexts = []string{"", "one", "two", "three", fixture.LongText(memory.ArtifactChunk + 1)}

// randomContent returns a short content and its text. Rarely, its digest is wrong.
func randomContent(d *comparison) (memory.Content, string) {
	text := artifactTexts[d.rand.IntN(len(artifactTexts)-1)]
	c := fixture.ContentOf(text)
	if d.oneIn(12) {
		c.SHA256 = fixture.ContentOf("another").SHA256
	}
	return c, text
}

func randomArtifactName(d *comparison) string { return pickOne(d, "a", "b", "a/b", "user:a", "user:b") }

func stageArtifact(d *comparison, s *testSession) call {
	h := d.randomLease(s)
	c, _ := randomContent(d)
	return newLeaseCall("StageArtifact", h, c, func(ctx context.Context, store memory.Store) (any, error) {
		return store.StageArtifact(ctx, h, c)
	})
}

func appendArtifact(d *comparison, s *testSession) call {
	h := d.randomLease(s)
	c, text := randomContent(d)
	offset := int64(0)
	if d.oneIn(12) {
		offset = 1 // does not match the length of the piece
	}
	return newAppendCall(h, c, offset, text)
}

// appendLongContent appends a piece of the long content. The second piece may come before the first.
func appendLongContent(d *comparison, s *testSession) call {
	text := artifactTexts[len(artifactTexts)-1]
	offset := pickOne(d, 0, memory.ArtifactChunk)
	end := min(offset+memory.ArtifactChunk, len(text))
	return newAppendCall(d.randomLease(s), fixture.ContentOf(text), int64(offset), text[offset:end])
}

func newAppendCall(h memory.Lease, c memory.Content, offset int64, piece string) call {
	return newLeaseCall("AppendArtifact", h, []any{c, offset, len(piece)}, func(ctx context.Context, store memory.Store) (any, error) {
		return nil, store.AppendArtifact(ctx, h, c, offset, []byte(piece))
	})
}

func putArtifact(d *comparison, s *testSession) call {
	h := d.randomLease(s)
	c, _ := randomContent(d)
	if d.oneIn(6) {
		c = fixture.ContentOf(artifactTexts[len(artifactTexts)-1])
	}
	a := memory.Artifact{Content: c, Name: randomArtifactName(d), MediaType: pickOne(d, "", "text/plain")}
	return newLeaseCall("PutArtifact", h, a, func(ctx context.Context, store memory.Store) (any, error) {
		return store.PutArtifact(ctx, h, a)
	})
}

func getArtifact(d *comparison, s *testSession) call {
	name, version := randomArtifactName(d), d.rand.IntN(6)
	return call{"GetArtifact", []any{s.ref, name, version}, func(ctx context.Context, store memory.Store) (any, error) {
		return store.GetArtifact(ctx, s.ref, name, version)
	}, nil}
}

func readArtifact(d *comparison, s *testSession) call {
	return newReadCall(s, fixture.ContentOf(pickOne(d, artifactTexts...)))
}

// newReadCall returns a call that reads all bytes of the content.
func newReadCall(s *testSession, c memory.Content) call {
	return call{"ReadArtifact", []any{s.ref, c}, func(ctx context.Context, store memory.Store) (any, error) {
		all := []byte{}
		for {
			piece, err := store.ReadArtifact(ctx, s.ref, c, int64(len(all)))
			if err != nil || len(piece) == 0 {
				return fixture.ContentOf(string(all)), err
			}
			all = append(all, piece...)
		}
	}, nil}
}

func listArtifacts(_ *comparison, s *testSession) call {
	return call{"ListArtifacts", s.ref, func(ctx context.Context, store memory.Store) (any, error) {
		return store.ListArtifacts(ctx, s.ref)
	}, nil}
}

func deleteArtifact(d *comparison, s *testSession) call {
	h, name, version := d.randomLease(s), randomArtifactName(d), d.rand.IntN(5)
	return newLeaseCall("DeleteArtifact", h, fmt.Sprint(name, " ", version), func(ctx context.Context, store memory.Store) (any, error) {
		return nil, store.DeleteArtifact(ctx, h, name, version)
	})
}

// randomFiles returns one or two files. Sometimes both have the same name, or one of them is empty.
func (d *comparison) randomFiles() []conversation.Attachment {
	files := make([]conversation.Attachment, 1+d.rand.IntN(2))
	for i := range files {
		files[i] = conversation.Attachment{Name: randomArtifactName(d), MediaType: pickOne(d, "", "text/plain"), Data: []byte(pickOne(d, artifactTexts...))}
	}
	return files
}
