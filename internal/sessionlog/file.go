package sessionlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/internal/chatformat"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// These modes let only the user of the process read the files.
const (
	folderMode fs.FileMode = 0o700
	fileMode   fs.FileMode = 0o600
)

// runFile is the content of a run file (CO-58). Its numbers are the sums over all turns of the run.
type runFile struct {
	Agent        yamlText  `yaml:"agent"`
	Session      yamlText  `yaml:"session"`
	SystemPrompt yamlText  `yaml:"system_prompt"`
	Model        yamlText  `yaml:"model"`
	Cwd          yamlText  `yaml:"cwd"`
	Tokens       int64     `yaml:"tokens"`
	InputTokens  int64     `yaml:"input_tokens"`
	OutputTokens int64     `yaml:"output_tokens"`
	Cost         *float64  `yaml:"cost"` // in US dollars (null if unknown)
	DurationMS   float64   `yaml:"duration_ms"`
	Timestamp    time.Time `yaml:"timestamp"`
	Messages     yamlText  `yaml:"messages"` // as package chatformat writes them
}

func (l *Log) runPath(name string, number int) string {
	return filepath.Join("evals", safeName(l.config.Agent), name, fmt.Sprintf("run_%d.yaml", number))
}

func (l *Log) writeRun(r run, t Turn) error {
	path := l.runPath(r.name, r.number)
	var messages bytes.Buffer
	if err := chatformat.Write(&messages, chatformat.Export(t.SystemPrompt, l.config.Agent, t.Messages)); err != nil {
		return newDiskError("sessionlog.Turn", l.displayPath(path), err)
	}
	return l.writeYAML(path, runFile{
		Agent: yamlText(l.config.Agent), Session: yamlText(t.Session), SystemPrompt: yamlText(t.SystemPrompt),
		Model: yamlText(t.Model), Cwd: yamlText(l.cwd),
		Tokens: r.usage.InputTokens + r.usage.OutputTokens, InputTokens: r.usage.InputTokens, OutputTokens: r.usage.OutputTokens,
		Cost: costInDollars(r.usage), DurationMS: milliseconds(r.duration), Timestamp: truncateToMillis(t.Started),
		Messages: yamlText(strings.TrimSpace(messages.String())),
	})
}

// readRun reads the totals of a run that an earlier process wrote.
func (l *Log) readRun(r *run) error {
	var file runFile
	if err := l.readYAML(l.runPath(r.name, r.number), &file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.duration = time.Duration(file.DurationMS * float64(time.Millisecond))
	r.usage.InputTokens, r.usage.OutputTokens = file.InputTokens, file.OutputTokens
	if file.Cost != nil {
		r.usage.CostMicros = int64(*file.Cost*1e6 + 0.5)
	}
	return nil
}

// removeOldRuns removes the run files with numbers up to last.
func (l *Log) removeOldRuns(name string, last int) error {
	if last <= 0 {
		return nil
	}
	folder := filepath.Join("evals", safeName(l.config.Agent), name)
	files, err := fs.ReadDir(l.root.FS(), filepath.ToSlash(folder))
	if err != nil {
		return newDiskError("sessionlog.Turn", l.displayPath(folder), err)
	}
	for _, f := range files {
		text, _ := strings.CutPrefix(strings.TrimSuffix(f.Name(), ".yaml"), "run_")
		if number, err := strconv.Atoi(text); err != nil || number > last {
			continue
		}
		if err := l.root.Remove(filepath.Join(folder, f.Name())); err != nil {
			return newDiskError("sessionlog.Turn", l.displayPath(folder), err)
		}
	}
	return nil
}

// readLog reads a session log. It returns nil if the log does not exist.
func (l *Log) readLog(name string) (*sessionLog, error) {
	log := &sessionLog{}
	err := l.readYAML(logPath(l.config.Agent, name), log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return log, err
}

func (l *Log) writeLog(name string, log *sessionLog) error {
	return l.writeYAML(logPath(l.config.Agent, name), log)
}

// removeOldestLogs removes the agent's least recently written logs until there is room for one more. It keeps
// edited and unreadable logs, even if they leave no room.
func (l *Log) removeOldestLogs() error {
	folder := filepath.Join("evals", safeName(l.config.Agent))
	files, err := fs.Glob(l.root.FS(), filepath.ToSlash(folder)+"/*.yaml")
	if err != nil || len(files) < MaxLogs {
		return err
	}
	written := map[string]time.Time{}
	for _, f := range files {
		if info, err := l.root.Stat(f); err == nil {
			written[f] = info.ModTime()
		}
	}
	slices.SortFunc(files, func(a, b string) int { return written[a].Compare(written[b]) })
	surplus := len(files) - MaxLogs + 1
	for _, f := range files {
		if surplus == 0 {
			break
		}
		name := strings.TrimSuffix(filepath.Base(f), ".yaml")
		if log, err := l.readLog(name); err != nil || log.isEdited() {
			continue // keep edited and unreadable logs
		}
		if err := errors.Join(l.root.RemoveAll(filepath.Join(folder, name)), l.root.Remove(f)); err != nil {
			return newDiskError("sessionlog.Turn", l.displayPath(f), err)
		}
		surplus--
	}
	return nil
}

func (l *Log) readYAML(path string, into any) error {
	text, err := l.root.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		return newDiskError("sessionlog.Turn", l.displayPath(path), err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return failure.Newf(failure.SystemDisk, "sessionlog.Turn", "%s is no valid session log; repair it or move it away: %s", l.displayPath(path), err).
			With("path", l.displayPath(path)).Because(err)
	}
	return nil
}

func encodeYAML(content any) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := errors.Join(encoder.Encode(content), encoder.Close())
	return b.Bytes(), err
}

// writeYAML writes a file atomically, so a reader sees either the old or the new content.
func (l *Log) writeYAML(path string, content any) error {
	text, err := encodeYAML(content)
	if err == nil {
		err = l.root.MkdirAll(filepath.Dir(path), folderMode)
	}
	if err == nil {
		err = l.writeAtomically(path, text)
	}
	if err != nil {
		return newDiskError("sessionlog.Turn", l.displayPath(path), err)
	}
	return nil
}

func (l *Log) writeAtomically(path string, text []byte) error {
	temporary := path + "." + uuid.NewString()
	file, err := l.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = l.root.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, l.root.Remove(temporary))
	}
	return nil
}

// displayPath returns the path of a file as messages show it.
func (l *Log) displayPath(inside string) string { return filepath.Join(l.root.Name(), inside) }
