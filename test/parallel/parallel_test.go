package parallel_test

import (
	"os"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/test/parallel"
)

const testCount = 5 // more than the CPUs of most machines that run this

func TestMain(m *testing.M) {
	parallel.SetMinimum(testCount)
	parallel.SetMinimum(1) // does not lower the limit
	os.Exit(m.Run())
}

// Each test waits for the others, so the tests end only if all of them run at once.
func TestSetMinimum_RunsTestsAtTheSameTime(t *testing.T) {
	var together sync.WaitGroup
	together.Add(testCount)
	for range testCount {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			together.Done()
			together.Wait()
		})
	}
}
