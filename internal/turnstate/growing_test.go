package turnstate_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/turnstate"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// An artifact is begun, grows and is complete. Its updates have all bytes in order, and small pieces share one.
//
// Req: LP-44
func TestGrowing_ReportsEachStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g turnstate.Growing
		var updates []event.ArtifactUpdate
		write := func(piece string, last bool) []byte {
			u, content, err := g.Append("a.md", "text/markdown", []byte(piece), last)
			require.NoError(t, err)
			if u != nil {
				updates = append(updates, *u)
			}
			return content
		}
		write("one ", false)
		write("two ", false) // too little and too early
		time.Sleep(time.Second)
		write("three ", false)
		write(string(make([]byte, 4<<10)), false)
		require.Equal(t, append([]byte("one two three "), append(make([]byte, 4<<10), "four"...)...), write("four", true))
		require.Equal(t, []event.ArtifactUpdate{
			{Name: "a.md", MediaType: "text/markdown", Size: 4, Data: []byte("one ")},
			{Name: "a.md", MediaType: "text/markdown", Size: 14, Data: []byte("two three "), Append: true},
			{Name: "a.md", MediaType: "text/markdown", Size: 14 + 4<<10, Data: make([]byte, 4<<10), Append: true},
			{Name: "a.md", MediaType: "text/markdown", Size: 18 + 4<<10, Data: []byte("four"), Append: true, Complete: true},
		}, updates)
		updates = nil
		write("again", true)
		require.Equal(t, []event.ArtifactUpdate{{Name: "a.md", MediaType: "text/markdown", Size: 5, Data: []byte("again"), Complete: true}}, updates)
	})
}

// A large artifact has updates without its content, and few of them.
//
// Req: LP-44
func TestGrowing_LargeArtifactsHaveFewUpdates(t *testing.T) {
	var g turnstate.Growing
	piece, count, bytesSent := make([]byte, 32<<10), 0, 0
	for n := range 320 { // 10 MiB
		u, _, err := g.Append("a", "", piece, n == 319)
		require.NoError(t, err)
		if u != nil {
			count, bytesSent = count+1, bytesSent+len(u.Data)
		}
	}
	require.Equal(t, event.MaxUpdateBytes, bytesSent)
	require.LessOrEqual(t, count, 15)
}

// An artifact that is written slowly has few updates, too.
func TestGrowing_SlowArtifactsHaveFewUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g turnstate.Growing
		count := 0
		for range event.MaxUpdateBytes {
			u, _, err := g.Append("a", "", []byte("x"), false)
			require.NoError(t, err)
			if u != nil {
				count++
			}
			time.Sleep(time.Second)
		}
		require.Less(t, count, 200)
	})
}

func TestGrowing_HasLimits(t *testing.T) {
	var g turnstate.Growing
	for n := range 8 {
		_, _, err := g.Append(fmt.Sprint(n), "", nil, false)
		require.NoError(t, err)
	}
	_, _, err := g.Append("9", "", nil, false)
	require.True(t, failure.Is(err, failure.ResourceQuota), "%v", err)
	require.Contains(t, failure.PlainMessage(err), "8 others are not complete")
	_, _, err = g.Append("a/b", "", nil, false)
	require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)

	_, _, err = g.Append("0", "", bytes.Repeat([]byte("x"), memory.MaxArtifactBytes+1), false)
	require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	require.Contains(t, failure.PlainMessage(err), "at most 67108864")
	_, _, err = g.Append("9", "", nil, true) // the failed one is dropped
	require.NoError(t, err)
}
