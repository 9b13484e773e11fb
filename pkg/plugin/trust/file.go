package trust

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// FileStore is a Store in a YAML file that people may read and edit:
//
//	clients:
//	  ed25519:2152f8d19b791d24453242e15f2eab6cb7cffa7b6a5ed30097960e069881db12: contact
//	  build-server: whitelisted
//
// Every call reads the file again, so an edit takes effect at once. Every change replaces it atomically, with mode 0600.
// All agents of a process that use a file must share one FileStore, and no second process may change the file.
type FileStore struct {
	path     string
	changeMu sync.Mutex
}

var _ Store = (*FileStore)(nil)

// OpenFile returns the store in the file with the given path. It creates the file if it is missing. Modes:
// system_disk for a file that cannot be read or written, agent_validation for invalid content. The methods of the
// store return the same modes, even if the file disappears later.
func OpenFile(path string) (*FileStore, error) {
	s := &FileStore{path: path}
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = s.write(states{})
	} else {
		_, err = s.read()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// State implements Store.
func (s *FileStore) State(_ context.Context, client string) (State, error) {
	clients, err := s.read()
	if err != nil {
		return "", err
	}
	return clients.stateOf(client), nil
}

// Change implements Store.
func (s *FileStore) Change(_ context.Context, client string, to func(State) (State, error)) (State, error) {
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	clients, err := s.read()
	if err != nil {
		return "", err
	}
	state, changed, err := clients.change(client, to)
	if changed {
		err = s.write(clients)
	}
	if err != nil {
		return "", err
	}
	return state, nil
}

type fileContent struct {
	Clients states `yaml:"clients"`
}

// read returns the states in the file. It rejects unknown entries, because such an entry may have been meant to
// block a client.
func (s *FileStore) read() (states, error) {
	text, err := os.ReadFile(s.path)
	if err != nil {
		return nil, failure.New(failure.SystemDisk, "trust.read", "the agent cannot read its list of clients").Because(err)
	}
	clients, err := parseFile(text)
	if err != nil {
		return nil, failure.New(failure.AgentValidation, "trust.read",
			"the agent's list of clients is not valid").Because(fmt.Errorf("%s: %w", s.path, err))
	}
	return clients, nil
}

func parseFile(text []byte) (states, error) {
	var form fileContent
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&form); err != nil {
		return nil, err // an empty file is an error too: it may have lost its content
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one document")
	}
	if form.Clients == nil {
		return nil, errors.New(`want the field "clients", which may be {}`)
	}
	for client, state := range form.Clients {
		if !validClient(client) {
			return nil, fmt.Errorf("client %q: %s", client, clientForm)
		}
		if !state.valid() {
			return nil, fmt.Errorf("client %q: state %q is not known", client, state)
		}
	}
	return form.Clients, nil
}

// write replaces the file atomically.
func (s *FileStore) write(clients states) error {
	text, err := yaml.Marshal(fileContent{Clients: clients})
	if err == nil {
		err = replaceFile(s.path, text)
	}
	if err != nil {
		return failure.New(failure.SystemDisk, "trust.write", "the agent cannot write its list of clients").Because(err)
	}
	return nil
}

func replaceFile(path string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = cmp.Or(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
