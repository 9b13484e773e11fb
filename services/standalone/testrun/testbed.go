package testrun

import (
	"context"
	"fmt"
	"runtime"
)

// testbed implements agenttest.T without package testing.
type testbed struct {
	context      func() context.Context
	cleanups     []func()
	fatalMessage string
}

// runTest runs a test and returns the message with which it ended early (empty if it did not).
func runTest(ctx context.Context, test func(*testbed)) (fatal string) {
	s := &testbed{context: func() context.Context { return ctx }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.cleanUp()
		test(s)
	}()
	<-done
	return s.fatalMessage
}

// cleanUp runs the cleanup functions in reverse order. All of them run even if one panics or ends the goroutine.
func (t *testbed) cleanUp() {
	if len(t.cleanups) == 0 {
		return
	}
	last := t.cleanups[len(t.cleanups)-1]
	t.cleanups = t.cleanups[:len(t.cleanups)-1]
	defer t.cleanUp()
	last()
}

// Helper implements agenttest.T.
func (t *testbed) Helper() {}

// Context implements agenttest.T.
func (t *testbed) Context() context.Context { return t.context() }

// Cleanup implements agenttest.T.
func (t *testbed) Cleanup(end func()) { t.cleanups = append(t.cleanups, end) }

// Fatalf implements agenttest.T. It ends the test, like the method in package testing.
func (t *testbed) Fatalf(format string, args ...any) {
	if t.fatalMessage == "" {
		t.fatalMessage = fmt.Sprintf(format, args...)
	}
	runtime.Goexit()
}
