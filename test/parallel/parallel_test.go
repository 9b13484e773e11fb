package parallel_test

import (
	"os"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/test/parallel"
)

const tests = 5 // more than the CPUs of most machines that run this

func TestMain(m *testing.M) {
	parallel.AtLeast(tests)
	parallel.AtLeast(1) // lowers nothing
	os.Exit(m.Run())
}

// The tests wait for each other, so they end only if all of them run at once.
func TestAtLeast(t *testing.T) {
	var together sync.WaitGroup
	together.Add(tests)
	for range tests {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			together.Done()
			together.Wait()
		})
	}
}
