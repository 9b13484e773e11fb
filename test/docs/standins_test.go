//go:build docs

package docs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	_ "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// standins maps program names to functions that play them in blocks that cannot run here. They check as much as
// they can.
var standins = map[string]func(args []string) error{
	"troupe": flagChecker(), "orchestrator": flagChecker("serve", "orchestrator"), "memory": flagChecker("serve", "memory"), "worker": flagChecker("serve",
		"worker"),
	"grpcurl": checkCall, "kubectl": checkKubectl, "docker": checkDocker, "make": checkMake, "go": checkGo, "git": checkGit, "npm": checkNpm,
	"kind": doNothing, "etcd": doNothing, "etcdctl": doNothing, "redis-server": doNothing, "redis-cli": doNothing, "curl": doNothing,
}

// TestMain runs one of the stand-ins if the test binary was started under its name.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { return arg == "…" })
	run := func() error { os.Exit(m.Run()); return nil }
	switch {
	case name == "sandbox":
		run = func() error { return runSandbox(args) }
	case standins[name] != nil && strings.HasPrefix(os.Getenv("PATH"), os.Getenv("STANDINS")+":"):
		run = func() error { return standins[name](args) }
	case name == "etcd":
		run = runEtcd
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func doNothing([]string) error { return nil }

// runEtcd runs a real etcd at 127.0.0.1:2379, as a reader would have it installed.
func runEtcd() error {
	cfg := embed.NewConfig()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		return err
	}
	cfg.Dir, cfg.LogLevel = dir, "error"
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	return <-server.Err()
}

// flagChecker returns a stand-in for one of our programs. It checks flags and arguments, and really runs commands
// that create something.
func flagChecker(command ...string) func([]string) error {
	return func(args []string) error {
		args = append(slices.Clip(command), args...)
		if len(args) < 2 || args[0] != "new" {
			args = append(args, "--help")
		}
		cmd := exec.Command(filepath.Join(filepath.Dir(os.Getenv("STANDINS")), "troupe"), args...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if args[0] == "new" {
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		}
		if err := cmd.Run(); err != nil {
			return errors.New(stderr.String())
		}
		return nil
	}
}

// checkCall checks that a grpcurl call names an existing method and has a valid request.
func checkCall(args []string) error {
	method := strings.Replace(args[len(args)-1], "/", ".", 1)
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(method))
	if err != nil {
		return fmt.Errorf("method %s: %w", method, err)
	}
	i := slices.Index(args, "-d")
	if i < 0 {
		return nil
	}
	request := dynamicpb.NewMessage(found.(protoreflect.MethodDescriptor).Input())
	return protojson.Unmarshal([]byte(args[i+1]), request)
}

var manifestPattern = regexp.MustCompile(`(?m)^kind: (\w+)\n(?:.*\n)*?metadata:\n(?:  .*\n)*?  name: (\S+)`)

// checkKubectl renders the folders that kubectl applies, and checks that an overlay contains each object that a
// command names.
func checkKubectl(args []string) error {
	if i := slices.Index(args, "-n"); i >= 0 {
		args = slices.Delete(slices.Clone(args), i, i+2)
	}
	switch args[0] {
	case "apply":
		if i := slices.Index(args, "-k"); i >= 0 {
			_, err := renderOverlay(args[i+1])
			return err
		}
		return nil
	case "get":
		if args[1] == "secret" && !slices.Contains(args, "-o") {
			return nil
		}
		return checkRendered(args[1], args[2])
	case "port-forward":
		kind, name, isNamed := strings.Cut(args[1], "/")
		if !isNamed {
			kind, name = "statefulset", strings.TrimRight(args[1], "-0123456789")
		}
		return checkRendered(kind, name)
	case "create":
		for _, arg := range args {
			if from, ok := strings.CutPrefix(arg, "--from=cronjob/"); ok {
				return checkRendered("cronjob", from)
			}
		}
		return nil
	case "rollout":
		if args[1] != "status" {
			return fmt.Errorf("unknown verb %v", args)
		}
		return nil
	}
	return fmt.Errorf("unknown verb %s", args[0])
}

func checkRendered(kind, name string) error {
	text, err := renderOverlay("deploy/k8s/overlays/dev")
	if err != nil {
		return err
	}
	if kind == "secret" { // made by cert-manager
		if !strings.Contains(text, "secretName: "+name+"\n") {
			return fmt.Errorf("no certificate is kept in the secret %s", name)
		}
		_, err := io.WriteString(os.Stdout, "c2VjcmV0")
		return err
	}
	for _, found := range manifestPattern.FindAllStringSubmatch(text, -1) {
		if strings.EqualFold(found[1], kind) && found[2] == name {
			return nil
		}
	}
	return fmt.Errorf("the manifests have no %s %s", kind, name)
}

func renderOverlay(dir string) (string, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return "", err
	}
	text, err := resources.AsYaml()
	return string(text), err
}

func checkDocker(args []string) error {
	i := slices.Index(args, "-f")
	if args[0] != "build" || i < 0 {
		return fmt.Errorf("unknown command %v", args)
	}
	_, err := os.Stat(args[i+1])
	return err
}

func checkMake(args []string) error {
	return runRealProgram("make", append([]string{"-n"}, args...)...)
}

// checkGo checks that the packages exist that the go command installs or runs.
func checkGo(args []string) error {
	if args[0] == "env" {
		return runRealProgram("go", args...)
	}
	for _, arg := range args[1:] {
		if strings.HasPrefix(arg, "./") {
			if err := runRealProgram("go", "list", arg); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkGit links to this repository in place of a clone, whatever address is given.
func checkGit(args []string) error {
	if args[0] != "clone" {
		return fmt.Errorf("unknown command %v", args)
	}
	return os.Symlink(os.Getenv("REPOSITORY"), filepath.Base(args[1]))
}

func checkNpm(args []string) error {
	if args[0] == "ci" {
		_, err := os.Stat("package-lock.json")
		return err
	}
	script := args[0]
	if script == "run" {
		script = args[1]
	}
	scripts, err := os.ReadFile("package.json")
	if err == nil && !strings.Contains(string(scripts), `"`+script+`":`) {
		err = fmt.Errorf("package.json has no script %s", script)
	}
	return err
}

// runRealProgram runs the program that the stand-in replaces.
func runRealProgram(name string, args ...string) error {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if dir == os.Getenv("STANDINS") {
			continue
		}
		if _, err := os.Stat(path); err == nil {
			cmd := exec.Command(path, args...)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			return cmd.Run()
		}
	}
	return fmt.Errorf("%s is not installed", name)
}
