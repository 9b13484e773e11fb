// Package contents defines how artifacts and their contents are stored: the hash of versions, and the keys of each
// content and its pieces. Sessions and users have the same layout, at different locations.
package contents

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
)

// Source is the Lua source for versions and contents. It defines make_room, version_of, put_version and
// drop_versions.
//
//go:embed scripts/contents.lua
var Source string

// StagedName returns the name of content in the list of staged contents: <sha>-<size>.
func StagedName(c memory.Content) string { return c.SHA256 + "-" + strconv.FormatInt(c.Size, 10) }

// ParseStagedName parses a name that StagedName returned.
func ParseStagedName(name string) memory.Content {
	sha, size, _ := strings.Cut(name, "-")
	return memory.Content{SHA256: sha, Size: db.ParseNumber(size)}
}

// ContentKey returns the name, within a location, of the key of the content.
func ContentKey(c memory.Content) string { return "blob:" + StagedName(c) }

// PieceKey returns the name, within a location, of the key of the piece of content at an offset.
func PieceKey(c memory.Content, offset int64) string {
	return ContentKey(c) + ":" + strconv.FormatInt(offset/memory.ArtifactChunk, 10)
}

// ContentKeys returns all keys of the content: its own key and the keys of its pieces.
func ContentKeys(at db.Location, c memory.Content) []string {
	all := []string{at(ContentKey(c))}
	for offset := int64(0); offset < c.Size; offset += memory.ArtifactChunk {
		all = append(all, at(PieceKey(c, offset)))
	}
	return all
}

// ArtifactContentKeys returns the keys of the contents of artifacts, each key once.
func ArtifactContentKeys(at db.Location, stored []memory.Artifact) []string {
	seen := map[memory.Content]bool{}
	var all []string
	for _, a := range stored {
		if !seen[a.Content] {
			seen[a.Content] = true
			all = append(all, ContentKeys(at, a.Content)...)
		}
	}
	return slices.Clip(all)
}

// DecodeVersions decodes the versions in a hash of artifacts, sorted by name and version.
func DecodeVersions(stored map[string]string) ([]memory.Artifact, error) {
	var all []memory.Artifact
	for field, value := range stored {
		version, ok := strings.CutPrefix(field, "v:")
		if !ok {
			continue
		}
		a, err := DecodeVersion(version[strings.LastIndexByte(version, 0)+1:], value)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return SortArtifacts(all), nil
}

// SortArtifacts sorts artifacts by name and version in place, and returns them.
func SortArtifacts(all []memory.Artifact) []memory.Artifact {
	slices.SortFunc(all, func(a, b memory.Artifact) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return all
}

// DecodeVersion decodes a version that contents.lua stored: digest, size, time and a troupe.v1.Artifact.
func DecodeVersion(version, stored string) (memory.Artifact, error) {
	parts := strings.SplitN(stored, " ", 4)
	if len(parts) != 4 {
		return memory.Artifact{}, fmt.Errorf("version %s of an artifact: %d parts and not 4", version, len(parts))
	}
	var p troupev1.Artifact
	if err := proto.Unmarshal([]byte(parts[3]), &p); err != nil {
		return memory.Artifact{}, fmt.Errorf("version %s of an artifact: %w", version, err)
	}
	a := memorywire.ArtifactFromProto(&p)
	a.Version, a.Created = int(db.ParseNumber(version)), db.ParseTime(parts[2])
	return a, nil
}

// RemovalArgs returns the keys and arguments with which drop_versions in contents.lua removes a version of an
// artifact (0 means all versions).
func RemovalArgs(at db.Location, stored []memory.Artifact, name string, version int) (keys []string, args []any) {
	for _, a := range stored {
		if a.Name == name && (version == 0 || a.Version == version) {
			content := ContentKeys(at, a.Content)
			keys, args = append(keys, content...), append(args, versionField(a), a.Size, len(content))
		}
	}
	return keys, args
}

// versionField returns the field of a version in the hash of artifacts. It must match the field that contents.lua
// uses.
func versionField(a memory.Artifact) string {
	return "v:" + a.Name + "\x00" + strconv.Itoa(a.Version)
}

// NewLimitExceededError returns the error for the script reply {"artifacts_full", versions, bytes}. owner
// describes the session or the user that has the artifacts.
func NewLimitExceededError(op, owner string, ref session.Ref, r db.Reply) error {
	return failure.Newf(failure.ResourceQuota, op,
		"%s has %s versions of artifacts of %s bytes, staged ones included; the limit is %d versions of %d bytes: delete some",
		owner, r.Text(1), r.Text(2), memory.MaxArtifacts, memory.MaxSessionArtifactBytes).
		With("session_id", ref.Session).With("artifacts", r.Text(1)).With("bytes", r.Text(2))
}
