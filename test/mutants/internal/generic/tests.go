package generic

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// maxTests is how many packages are asked whether they notice a change.
const maxTests = 5

// findTests returns for each package the packages whose tests run its code: itself, and then those that need the least
// other code.
func findTests(root string) (map[string][]string, error) {
	cmd := exec.Command("go", "list", "-test", "-f", `{{if .ForTest}}{{.ForTest}} {{join .Deps " "}}{{end}}`, "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	module, err := modulePath(root)
	if err != nil {
		return nil, err
	}
	deps := map[string]map[string]bool{} // packages of this module that the tests of a package need
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		tested := strings.TrimPrefix(fields[0], module)
		if deps[tested] == nil {
			deps[tested] = map[string]bool{tested: true}
		}
		for _, d := range fields[1:] {
			if local, ok := strings.CutPrefix(d, module); ok {
				deps[tested][local] = true
			}
		}
	}
	testedBy := map[string][]string{}
	for tested, needs := range deps {
		for local := range needs {
			testedBy[local] = append(testedBy[local], tested)
		}
	}
	for local, tests := range testedBy {
		slices.SortFunc(tests, func(a, b string) int {
			return cmp.Or(cmp.Compare(distance(local, a, deps), distance(local, b, deps)), cmp.Compare(a, b))
		})
		testedBy[local] = tests[:min(len(tests), maxTests)]
	}
	return testedBy, nil
}

// distance orders the packages that may notice a change of a package: itself first, then its neighbours in the same folder,
// then those with the fewest dependencies.
func distance(local, tested string, deps map[string]map[string]bool) int {
	switch {
	case local == tested:
		return 0
	case path.Dir(local) == tested || path.Dir(tested) == local || path.Dir(local) == path.Dir(tested):
		return 1
	}
	return 1 + len(deps[tested])
}

func modulePath(root string) (string, error) {
	cmd := exec.Command("go", "list", "-m")
	cmd.Dir = root
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)) + "/", err
}
