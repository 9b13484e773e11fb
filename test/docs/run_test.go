//go:build docs

package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const pageTimeout = 2 * time.Minute // for a page

// Every shell block of every page does what the page says. The blocks of a page run in order in one bash. Each
// page has its own copy of the repository and its own network.
func TestPages_ShellBlocksRun(t *testing.T) {
	w := newSharedEnvironment(t)
	t.Run("shapes", w.runWorkflowShapes)
	for _, page := range pagePaths(t) {
		blocks, err := parseBlocks(page, readPage(t, page))
		require.NoError(t, err)
		if !slices.ContainsFunc(blocks, func(b block) bool { return b.kind == "sh" || b.kind == "console" }) {
			continue
		}
		t.Run(page, func(t *testing.T) {
			if w.isolated {
				t.Parallel()
			}
			w.run(t, newScript(t, blocks))
		})
	}
}

// sharedEnvironment is the environment that the runs of all pages share.
type sharedEnvironment struct {
	root      string   // of the repository
	binFolder string   // troupe, and what a reader has installed
	files     []string // of the repository
	env       []string
	isolated  bool // whether each page has a network and a root of its own
}

func newSharedEnvironment(t *testing.T) *sharedEnvironment {
	t.Helper()
	w := &sharedEnvironment{binFolder: t.TempDir(), isolated: canIsolate()}
	if !w.isolated {
		t.Log("this machine permits no namespaces, so pages run one after the other")
	}
	var err error
	w.root, err = filepath.Abs(repositoryRoot)
	require.NoError(t, err)
	flags := strings.TrimSpace(os.Getenv("GOFLAGS") + " -buildvcs=false")
	build := exec.Command("go", "build", "-o", w.binFolder+"/", "./cmd/troupe")
	build.Dir, build.Env = w.root, append(os.Environ(), "GOFLAGS="+flags)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	list := exec.Command("git", "ls-files", "-co", "--exclude-standard", "-z")
	list.Dir = w.root
	out, err = list.Output()
	require.NoError(t, err)
	w.files = strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")

	// The test plays the programs that a reader has installed.
	if found, _ := filepath.Glob(filepath.Join(w.root, ".tmp", "bin", "grpcurl-*")); len(found) > 0 {
		program, err := os.ReadFile(found[0]) // a link would lead into the repository, which a page does not see
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(w.binFolder, "grpcurl"), program, 0o755)) //nolint:gosec // it is run
	}
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(w.binFolder, "etcd")))
	require.NoError(t, os.Mkdir(filepath.Join(w.binFolder, "standins"), 0o755))
	for name := range standins {
		require.NoError(t, os.Symlink(self, filepath.Join(w.binFolder, "standins", name)))
	}

	goEnv, err := exec.Command("go", "env", "GOMODCACHE", "GOCACHE").Output()
	require.NoError(t, err)
	dirs := strings.Fields(string(goEnv))
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TROUPE_") && !strings.HasPrefix(v, "MAKE") && !strings.HasSuffix(strings.Split(v, "=")[0], "_API_KEY") {
			w.env = append(w.env, v)
		}
	}
	w.env = append(w.env, "GOMODCACHE="+dirs[0], "GOCACHE="+dirs[1], "GOPROXY=off", "GOFLAGS="+flags, "GOTOOLCHAIN=local",
		"PATH="+w.binFolder+":"+os.Getenv("PATH"), "STANDINS="+filepath.Join(w.binFolder, "standins"), "REPOSITORY="+w.root, "TERM=dumb")
	return w
}

// copyRepository makes a copy of the repository for one page.
func (e *sharedEnvironment) copyRepository(t *testing.T, dir string) {
	t.Helper()
	files := e.files
	require.NoError(t, filepath.WalkDir(filepath.Join(e.root, ".tmp", "third_party"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(slices.Clip(files), strings.TrimPrefix(path, e.root+"/"))
		}
		return err
	}), "make tools makes it")
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(e.root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the file was removed but the removal is not committed
		}
		require.NoError(t, err)
		info, err := os.Stat(filepath.Join(e.root, name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, info.Mode()))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
	require.NoError(t, os.Link(filepath.Join(e.binFolder, "troupe"), filepath.Join(dir, "bin", "troupe")))
}

func (e *sharedEnvironment) run(t *testing.T, s *script) {
	t.Helper()
	dir, err := os.MkdirTemp("", "page") //nolint:usetesting // a short path, because etcd and Redis put sockets there
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	repository, home := filepath.Join(dir, "repository"), filepath.Join(dir, "home")
	e.copyRepository(t, repository)
	require.NoError(t, os.Mkdir(home, 0o755))
	s.write(t, dir)

	ctx, cancel := context.WithTimeout(t.Context(), pageTimeout)
	defer cancel()
	cmd := e.scriptCommand(ctx, repository, filepath.Join(dir, "script.sh"))
	cmd.Env = append(cmd.Env, "HOME="+home, "GOPATH="+filepath.Join(home, "go"), "SCRIPT="+dir)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("the page takes longer than %s: %w", pageTimeout, err)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", s.lastPosition(dir), err, out, s.outputTail(dir))
	}
	s.checkOutputs(t, dir)
}

// scriptPart is a part of a script whose output is stored separately: a block, or one command of a console.
type scriptPart struct {
	block
	commands string
	expected *string // nil allows any output
}

// script is the bash script that runs the blocks of a page.
type script struct{ parts []scriptPart }

func newScript(t *testing.T, blocks []block) *script {
	t.Helper()
	s := &script{}
	for _, b := range blocks {
		switch b.kind {
		case "sh", "run":
			s.parts = append(s.parts, scriptPart{block: b, commands: b.text()})
		case "output":
			text := b.text()
			s.parts[len(s.parts)-1].expected = &text
		case "log":
			s.parts = append(s.parts, scriptPart{block: b, commands: s.await(t, b)})
		case "console":
			s.addConsole(b)
		}
	}
	return s
}

// await returns commands that wait until the program in the other terminal has printed the lines of the block.
func (s *script) await(t *testing.T, b block) string {
	t.Helper()
	for i, p := range slices.Backward(s.parts) {
		if !p.background {
			continue
		}
		var commands strings.Builder
		for _, line := range b.lines {
			line, _, _ = strings.Cut(line, "{")
			fmt.Fprintf(&commands, "await $SCRIPT/%d.out $$ -F <<'LINE'\n%s\nLINE\n", i, line)
		}
		return commands.String()
	}
	t.Fatalf("%v: no program runs in another terminal", b)
	return ""
}

// addConsole adds a part for each command of a console block. The lines after a command are its expected output.
func (s *script) addConsole(b block) {
	continued := false
	for i, line := range b.lines {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case isCommand:
			p := scriptPart{block: b, commands: command + "\n", expected: new(string)}
			p.line += i
			s.parts = append(s.parts, p)
		case continued:
			s.parts[len(s.parts)-1].commands += line + "\n"
		default:
			*s.parts[len(s.parts)-1].expected += line + "\n"
		}
		continued = (isCommand || continued) && strings.HasSuffix(line, `\`)
	}
}

// prelude is the beginning of each script. Its function await FILE PID OPTION waits until the file has a line that
// matches the pattern on stdin, while the process is alive. Its function mesh FLAG... starts a mesh in the
// background.
const prelude = `set -eo pipefail
trap 'echo "$? $n" >$SCRIPT/status' EXIT
await() {
  local pattern i
  read -r pattern
  for i in $(seq 1500); do
    ! grep -q "$3" -e "$pattern" "$1" || return 0
    kill -0 "$2" 2>/dev/null || { echo "it ended at once"; return 1; }
    sleep 0.05
  done
  echo "after 75 s nothing has printed: $pattern"; return 1
}
mesh() {
  troupe dev "$@" >"$SCRIPT/mesh.log" 2>&1 & await "$SCRIPT/mesh.log" $! -F <<<'The mesh is up'
}
up='The mesh is up|is served at|"state":"ready"|serving the conformance kit'
real_path=$PATH
`

func (s *script) write(t *testing.T, dir string) {
	t.Helper()
	var all strings.Builder
	all.WriteString(prelude)
	for i, p := range s.parts {
		file := filepath.Join(dir, strconv.Itoa(i))
		require.NoError(t, os.WriteFile(file+".sh", []byte(p.commands), 0o600))
		fmt.Fprintf(&all, "n=%d; exec >%s.out 2>&1 </dev/null; PATH=$real_path\n", i, file)
		if p.skipReason != "" {
			all.WriteString("real_path=$PATH; PATH=$STANDINS:$PATH\n")
		}
		switch {
		case p.background && p.skipReason == "":
			fmt.Fprintf(&all, "( . %[1]s.sh ) & await %[1]s.out $! -E <<<\"$up\"\n", file)
		case p.exit != "":
			fmt.Fprintf(&all, "set +e; . %s.sh; got=$?; set -e; [ $got = %s ] || { echo \"exit code $got\"; exit 1; }\n", file, p.exit)
		default:
			fmt.Fprintf(&all, ". %s.sh\n", file)
		}
		if p.skipReason == "" {
			all.WriteString("real_path=$PATH\n") // the page may have set it
		}
	}
	all.WriteString("n=end\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script.sh"), []byte(all.String()), 0o600))
}

// lastPart returns the index of the part in which the script ended.
func (s *script) lastPart(dir string) int {
	status, _ := os.ReadFile(filepath.Join(dir, "status"))
	if words := strings.Fields(string(status)); len(words) == 2 {
		if i, err := strconv.Atoi(words[1]); err == nil {
			return i
		}
	}
	for i := range s.parts { // the script was killed: return the part that started last
		if _, err := os.Stat(filepath.Join(dir, strconv.Itoa(i)+".out")); err != nil {
			return max(0, i-1)
		}
	}
	return len(s.parts) - 1
}

func (s *script) lastPosition(dir string) string { return s.parts[s.lastPart(dir)].String() }

// outputTail returns the end of what the last part and the programs in other terminals printed.
func (s *script) outputTail(dir string) string {
	var all strings.Builder
	for i, p := range s.parts[:s.lastPart(dir)+1] {
		if !p.background && i != s.lastPart(dir) {
			continue
		}
		out, _ := os.ReadFile(filepath.Join(dir, strconv.Itoa(i)+".out"))
		fmt.Fprintf(&all, "-- %v prints\n%s", p, out[max(0, len(out)-4000):])
	}
	return all.String()
}

// checkOutputs compares the outputs with the output that the page quotes.
func (s *script) checkOutputs(t *testing.T, dir string) {
	t.Helper()
	var stays []byte
	for i, p := range s.parts {
		out, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(i)+".out"))
		require.NoError(t, err)
		if p.background {
			stays = out
		}
		switch {
		case p.kind == "log":
			for _, line := range p.lines {
				if !bytes.Contains([]byte(normalize(string(stays))), []byte(normalize(line))) {
					t.Errorf("%v: the program in the other terminal never prints\n%s\nbut\n%s", p, line, stays)
				}
			}
		case p.expected != nil && p.skipReason == "" && !matches(*p.expected, string(out)):
			t.Errorf("%v: the page quotes\n%s\nbut this is printed:\n%s", p, *p.expected, out)
		}
	}
}
