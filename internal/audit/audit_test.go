package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openLog(t *testing.T, path string, most int64, log *zap.Logger) *Log {
	t.Helper()
	l, err := New(Config{Path: path, MaxBytes: most, Name: "test", Log: log, Meter: noop.Meter{}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// writeLog opens the log, records n entries and closes the log.
func writeLog(t *testing.T, path string, most int64, n int) {
	t.Helper()
	l := openLog(t, path, most, zap.NewNop())
	for i := range n {
		l.Record(Entry{
			Kind: Denied, Actor: "worker research", Action: "/troupe.v1.MemoryService/BeginTurn", Object: fmt.Sprint(i),
			Result: "policy_security", Facts: map[string]string{"tenant": "a"},
		})
	}
	require.NoError(t, l.Close())
}

// chainFiles returns the files of a chain, from the oldest to the current one.
func chainFiles(t *testing.T, path string) []string {
	t.Helper()
	aside, _, err := listFullFiles(path)
	require.NoError(t, err)
	return append(aside, path)
}

func TestLog_StoresEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit", "log.jsonl")
	core, logs := observer.New(zap.InfoLevel)
	l := openLog(t, path, 0, zap.New(core))
	sent := Entry{
		Kind: Admin, Actor: "admin ada", Action: "/troupe.v1.OrchestratorService/PauseAgent", Object: "research", Result: "ok",
		Facts: map[string]string{"tenant": "default"},
	}
	l.Named("orchestrator").Record(sent)
	sent.Facts["tenant"] = "another" // the caller may change the map after Record
	require.NoError(t, l.Close())
	require.NoError(t, l.Close(), "again")
	l.Record(sent) // an entry recorded after Close is lost without an error

	var read []RecordedEntry
	r, err := Verify([]string{path}, "", func(_ string, _ int, e RecordedEntry) { read = append(read, e) })
	require.NoError(t, err)
	require.Len(t, read, 3, "begin, one entry, end")
	sent.Facts["tenant"] = "default"
	require.Equal(t, sent, read[1].Entry)
	require.Equal(t, "orchestrator", read[1].Component)
	require.WithinDuration(t, time.Now(), read[1].Time, time.Minute)
	require.Equal(t, Report{Lines: 3, First: 1, Last: 3, From: read[0].Time, To: read[2].Time, Head: r.Head}, r)
	loggedHead := logs.FilterMessage("audit log ended").All()
	require.Len(t, loggedHead, 1)
	require.Equal(t, r.Head, loggedHead[0].ContextMap()["head"])

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestLog_NilDiscardsEntries(t *testing.T) {
	var l *Log
	l.Named("x").Record(Entry{Kind: Denied})
	require.NoError(t, l.Close())
}

func TestLog_LocksItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	openLog(t, path, 0, zap.NewNop())
	_, err := New(Config{Path: path, Log: zap.NewNop(), Meter: noop.Meter{}})
	require.ErrorContains(t, err, path+" is in use by another process")
}

func TestLog_ContinuesAcrossRestartsAndFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	writeLog(t, path, 2000, 30)
	writeLog(t, path, 2000, 0)
	writeLog(t, path, 2000, 30)
	all := chainFiles(t, path)
	require.Greater(t, len(all), 2)
	all[0], all[2] = all[2], all[0] // Verify accepts the files in any order
	resumed, denied := 0, 0
	r, err := Verify(all, "", func(_ string, _ int, e RecordedEntry) {
		if e.Action == actionResume {
			resumed++
		}
		if e.Kind == Denied {
			denied++
		}
	})
	require.NoError(t, err)
	require.Equal(t, 2, resumed)
	require.Equal(t, 60, denied)
	require.EqualValues(t, 1, r.First)
	require.EqualValues(t, r.Lines, r.Last)
	require.NoError(t, os.Remove(path)) // as if the process had stopped during a rotation
	writeLog(t, path, 2000, 1)
	_, err = Verify(chainFiles(t, path), "", nil)
	require.NoError(t, err)
}

// After a crash the file may end with a partial line, or with zeros if the file system stored only the length. The
// log continues after both.
func TestLog_ContinuesAfterATornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for i, left := range []string{`{"n":17,"prev":"`, "\x00\x00\x00", "torn\nand\n\nmore", "torn with its end\n"} {
		writeLog(t, path, 0, 2)
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = file.WriteString(left)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		_, err = Verify([]string{path}, "", nil)
		require.ErrorContains(t, err, "this line was changed")
		writeLog(t, path, 0, 1)
		r, err := Verify([]string{path}, "", nil)
		require.NoError(t, err, "%q", left)
		require.Equal(t, i+1, r.TornPlaces)
	}
	empty := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(empty, []byte(`{"n":1,"pr`), 0o600))
	writeLog(t, empty, 0, 1)
	_, err := Verify([]string{empty}, "", nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(empty, []byte("a file of\nanother program\n"), 0o600))
	_, err = New(Config{Path: empty, Log: zap.NewNop(), Meter: noop.Meter{}})
	require.ErrorContains(t, err, "does not end like an audit log")
}

// Recorded text can neither look like a separate line nor control a terminal.
func TestLog_SanitizesText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path, 0, zap.NewNop())
	evil := "a\n{\"n\":3}\r\x1b[2J\u009b31m\u202egood\u2028\x7f\xff"
	l.Record(Entry{Kind: Kind(evil), Actor: evil, Action: evil, Object: evil + strings.Repeat("x", 5000), Result: evil, Facts: map[string]string{evil: evil}})
	many := map[string]string{}
	for i := range 1000 {
		many[fmt.Sprint(i)] = strings.Repeat("\u202e", 1<<11)
	}
	l.Record(Entry{Kind: Denied, Facts: many})
	require.NoError(t, l.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 4, bytes.Count(text, []byte("\n")))
	require.NotContains(t, strings.Map(func(r rune) rune {
		if r != '\n' && (r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x2028 && r <= 0x202e) {
			return '!'
		}
		return r
	}, string(text)), "!")
	require.Less(t, len(text), maxLineBytes)
	_, err = Verify([]string{path}, "", nil)
	require.NoError(t, err)
}

// Entries that cannot be written are counted and logged. Once the file is writable again, the chain contains their
// number, even after a torn line.
func TestQueue_ReportsLostEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	c, err := openChain(path, DefaultMaxBytes)
	require.NoError(t, err)
	core, logs := observer.New(zap.InfoLevel)
	entries, err := noop.Meter{}.Int64Counter("")
	require.NoError(t, err)
	q := &queue{
		chain: c, log: zap.New(core), entryCounter: entries, lostCounter: entries, waiting: make(chan queuedEntry, 2), stop: make(chan struct{}),
		done: make(chan struct{}),
	}
	denied := queuedEntry{Entry: Entry{Kind: Denied}, recordedAt: time.Now()}
	for range 5 {
		q.enqueue(denied) // no writer runs, and the queue holds 2
	}
	disk, full := c.file, requireFile(t)(os.OpenFile("/dev/full", os.O_WRONLY, 0))
	c.file = full
	q.write()
	q.write(denied)
	require.EqualValues(t, 6, q.lost.Load(), "3 did not fit into the queue, and 3 could not be written")
	require.Equal(t, 1, logs.FilterLevelExact(zap.ErrorLevel).Len(), "once, and not for each")
	require.NoError(t, full.Close())
	c.file = disk
	_, err = disk.WriteString(`{"n":2,"pre`) // part of a line that reached the disk
	require.NoError(t, err)
	c.addTornBytes([]byte(`{"n":2,"pre`))
	q.write(denied)
	go q.run()
	require.NoError(t, q.close())
	r, err := Verify([]string{path}, "", nil)
	require.NoError(t, err)
	require.EqualValues(t, 6, r.LostEntries)
	require.Equal(t, 1, r.TornPlaces)
	require.Equal(t, 1, logs.FilterMessage("the audit log can be written again").Len())
}

// A process logs each time that its open file is moved or replaced, but not its own rotation.
func TestLog_ReportsAMovedFile(t *testing.T) {
	dir := t.TempDir()
	path, moved := filepath.Join(dir, "log"), filepath.Join(dir, "moved")
	c, err := openChain(path, 1000)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.close()) }()
	core, logs := observer.New(zap.InfoLevel)
	q := &queue{chain: c, log: zap.New(core)}
	said := func() int { q.checkMoved(); return logs.FilterMessageSnippet("was moved or removed").Len() }
	require.Zero(t, said())
	require.NoError(t, os.Rename(path, moved))
	require.Equal(t, 1, said())
	require.Equal(t, 1, said(), "once")
	require.NoError(t, os.Rename(moved, path))
	require.Equal(t, 1, said())
	require.NoError(t, os.Rename(path, moved))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.Equal(t, 2, said(), "another file is there")
	require.NoError(t, os.Rename(moved, path))
	require.NoError(t, c.rotate())
	require.Equal(t, 2, said(), "it sets its file aside itself")
}

func requireFile(t *testing.T) func(*os.File, error) *os.File {
	return func(f *os.File, err error) *os.File {
		t.Helper()
		require.NoError(t, err)
		return f
	}
}

func TestLog_StoresOrCountsEveryConcurrentEntry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path, 100_000, zap.NewNop())
	var writing sync.WaitGroup
	for range 8 {
		writing.Go(func() {
			for range 1000 {
				l.Record(Entry{Kind: Denied, Action: "call"})
			}
		})
	}
	writing.Wait()
	require.NoError(t, l.Close())
	denied := 0
	r, err := Verify(chainFiles(t, path), "", func(_ string, _ int, e RecordedEntry) {
		if e.Kind == Denied {
			denied++
		}
	})
	require.NoError(t, err)
	require.EqualValues(t, 8000, int64(denied)+r.LostEntries)
}

// BenchmarkLog_Record measures what Record costs its caller.
func BenchmarkLog_Record(b *testing.B) {
	l, err := New(Config{Path: filepath.Join(b.TempDir(), "log"), Log: zap.NewNop(), Meter: noop.Meter{}})
	require.NoError(b, err)
	e := Entry{Kind: Credential, Actor: "orchestrator", Action: "issue", Object: "s1", Result: "ok", Facts: map[string]string{
		"tenant":   "a",
		"trace_id": "0af7651916cd43dd8448eb211c80319c",
	}}
	for b.Loop() {
		l.Record(e)
	}
	require.NoError(b, l.Close())
}
