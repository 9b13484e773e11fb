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

// standins play the programs of blocks that cannot run here. They check what can be checked.
var standins = map[string]func(args []string) error{
	"troupe": flags(), "orchestrator": flags("serve", "orchestrator"), "memory": flags("serve", "memory"), "worker": flags("serve", "worker"),
	"grpcurl": checkCall, "kubectl": checkKubectl, "docker": checkDocker, "make": checkMake, "go": checkGo, "git": checkGit, "npm": checkNpm,
	"kind": nothing, "etcd": nothing, "etcdctl": nothing, "redis-server": nothing, "redis-cli": nothing, "curl": nothing,
}

// TestMain lets the test be started as one of the programs that pages need.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { return arg == "…" })
	run := func() error { os.Exit(m.Run()); return nil }
	switch {
	case name == "sandbox":
		run = func() error { return sandbox(args) }
	case standins[name] != nil && strings.HasPrefix(os.Getenv("PATH"), os.Getenv("STANDINS")+":"):
		run = func() error { return standins[name](args) }
	case name == "etcd":
		run = etcd
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func nothing([]string) error { return nil }

// etcd is a real etcd at 127.0.0.1:2379, as a reader has it installed.
func etcd() error {
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

// flags returns a stand-in for one of our programs, which checks its flags and arguments; a command that makes
// something runs.
func flags(command ...string) func([]string) error {
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

// checkCall checks that a call of grpcurl names a method that exists, with a request that the method takes.
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

var manifest = regexp.MustCompile(`(?m)^kind: (\w+)\n(?:.*\n)*?metadata:\n(?:  .*\n)*?  name: (\S+)`)

// checkKubectl renders the folders that are applied, and checks that objects that a command names are in an overlay.
func checkKubectl(args []string) error {
	if i := slices.Index(args, "-n"); i >= 0 {
		args = slices.Delete(slices.Clone(args), i, i+2)
	}
	switch args[0] {
	case "apply":
		if i := slices.Index(args, "-k"); i >= 0 {
			_, err := render(args[i+1])
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
	text, err := render("deploy/k8s/overlays/dev")
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
	for _, found := range manifest.FindAllStringSubmatch(text, -1) {
		if strings.EqualFold(found[1], kind) && found[2] == name {
			return nil
		}
	}
	return fmt.Errorf("the manifests have no %s %s", kind, name)
}

func render(dir string) (string, error) {
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

func checkMake(args []string) error { return runReal("make", append([]string{"-n"}, args...)...) }

// checkGo checks that the packages exist that go should install or run.
func checkGo(args []string) error {
	if args[0] == "env" {
		return runReal("go", args...)
	}
	for _, arg := range args[1:] {
		if strings.HasPrefix(arg, "./") {
			if err := runReal("go", "list", arg); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkGit clones this repository, whatever the address.
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

// runReal runs the program that a stand-in plays.
func runReal(name string, args ...string) error {
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
