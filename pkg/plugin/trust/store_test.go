package trust_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/plugin/trust"
)

func setState(state trust.State) func(trust.State) (trust.State, error) {
	return func(trust.State) (trust.State, error) { return state, nil }
}

func TestStore_KeepsStates(t *testing.T) {
	file, err := trust.OpenFile(filepath.Join(t.TempDir(), "clients.yaml"))
	require.NoError(t, err)
	for name, store := range map[string]trust.Store{"RAM": &trust.RAMStore{}, "file": file} {
		t.Run(name, func(t *testing.T) {
			state, err := store.State(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, trust.Stranger, state)

			for _, want := range []trust.State{trust.Contact, trust.Contact, trust.Blocked, trust.Stranger, trust.Whitelisted} {
				state, err = store.Change(t.Context(), "a", setState(want))
				require.NoError(t, err)
				require.Equal(t, want, state)
				state, err = store.State(t.Context(), "a")
				require.NoError(t, err)
				require.Equal(t, want, state)
			}
			no := errors.New("no")
			_, err = store.Change(t.Context(), "a", func(from trust.State) (trust.State, error) {
				require.Equal(t, trust.Whitelisted, from)
				return trust.Admin, no
			})
			require.ErrorIs(t, err, no)
			state, err = store.State(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, trust.Whitelisted, state)

			for client, state := range map[string]trust.State{"b c": trust.Contact, "b": "friend"} {
				_, err = store.Change(t.Context(), client, setState(state))
				require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
			}
			_, err = store.State(t.Context(), "a")
			require.NoError(t, err)
		})
	}
}

// Concurrent changes of one client each take effect exactly once, and no reader sees an incomplete file.
func TestStore_SerializesChanges(t *testing.T) {
	file, err := trust.OpenFile(filepath.Join(t.TempDir(), "clients.yaml"))
	require.NoError(t, err)
	for name, store := range map[string]trust.Store{"RAM": &trust.RAMStore{}, "file": file} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			seen := map[trust.State]int{}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					_, err := store.Change(t.Context(), "a", func(from trust.State) (trust.State, error) {
						mu.Lock()
						defer mu.Unlock()
						seen[from]++
						if from == trust.Stranger {
							return trust.Contact, nil
						}
						return from, nil
					})
					if err == nil {
						_, err = store.State(t.Context(), "a")
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			require.Equal(t, map[trust.State]int{trust.Stranger: 1, trust.Contact: 7}, seen)
		})
	}
}

func TestFileStore_RestrictsItsFileToTheOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clients.yaml")
	store, err := trust.OpenFile(path)
	require.NoError(t, err)
	mode := func() os.FileMode {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Mode()
	}
	require.Equal(t, os.FileMode(0o600), mode())

	require.NoError(t, os.Chmod(path, 0o644))
	_, err = store.Change(t.Context(), clientName(alice), setState(trust.Contact))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), mode())

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "clients:\n    "+clientName(alice)+": contact\n", string(text))
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, files, 1, "nothing is left behind")

	again, err := trust.OpenFile(path)
	require.NoError(t, err)
	state, err := again.State(t.Context(), clientName(alice))
	require.NoError(t, err)
	require.Equal(t, trust.Contact, state)
}

func TestFileStore_ReadsManualEdits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clients.yaml")
	store, err := trust.OpenFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("# ours\nclients: {build-server: admin}\n"), 0o600))
	g := noonGate(t, trust.GateConfig{Store: store})
	_, err = g.BlockClient(t.Context(), "build-server", clientName(alice))
	require.NoError(t, err)
}

// If the file cannot be read, the gate rejects every client, even at level open.
func TestFileStore_FailsClosed(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		mode failure.Mode
	}{
		"gone":           {"", failure.SystemDisk},
		"empty":          {"\n", failure.AgentValidation},
		"no clients":     {"clients:\n", failure.AgentValidation},
		"no YAML":        {"clients: {", failure.AgentValidation},
		"unknown field":  {"clients: {}\nblocked: [a]\n", failure.AgentValidation},
		"unknown state":  {"clients: {a: blocekd}\n", failure.AgentValidation},
		"no state":       {"clients: {a: }\n", failure.AgentValidation},
		"twice":          {"clients: {a: blocked, a: contact}\n", failure.AgentValidation},
		"two documents":  {"clients: {}\n---\nclients: {a: blocked}\n", failure.AgentValidation},
		"key in capital": {"clients: {ED25519:AB: blocked}\n", failure.AgentValidation},
		"key too short":  {"clients: {\"ed25519:ab\": blocked}\n", failure.AgentValidation},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "clients.yaml")
			store, err := trust.OpenFile(path)
			require.NoError(t, err)
			g := noonGate(t, trust.GateConfig{Level: trust.Open, Store: store})

			require.NoError(t, os.WriteFile(path, []byte(tc.text), 0o600))
			if tc.text == "" {
				require.NoError(t, os.Remove(path))
			}
			for _, visit := range []trust.Visit{signedVisit(alice), signedVisit(root), {Text: question, Client: "a"}} {
				decision, err := g.Decide(t.Context(), visit)
				require.Equal(t, tc.mode, failure.ModeOf(err))
				require.False(t, decision.Allowed)
				require.NotContains(t, failure.PlainMessage(err), path)
			}
			_, err = g.BlockClient(t.Context(), clientName(root), "a")
			require.Equal(t, tc.mode, failure.ModeOf(err))
			if tc.text != "" {
				_, err = trust.OpenFile(path)
				require.Equal(t, tc.mode, failure.ModeOf(err))
			}
		})
	}
}

func TestOpenFile_ReportsAReadOnlyFile(t *testing.T) {
	_, err := trust.OpenFile(filepath.Join(t.TempDir(), "missing", "clients.yaml"))
	require.Equal(t, failure.SystemDisk, failure.ModeOf(err))
}
