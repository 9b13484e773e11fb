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
func (s *testbed) cleanUp() {
	if len(s.cleanups) == 0 {
		return
	}
	last := s.cleanups[len(s.cleanups)-1]
	s.cleanups = s.cleanups[:len(s.cleanups)-1]
	defer s.cleanUp()
	last()
}

// Helper implements agenttest.T.
func (s *testbed) Helper() {}

// Context implements agenttest.T.
func (s *testbed) Context() context.Context { return s.context() }

// Cleanup implements agenttest.T.
func (s *testbed) Cleanup(end func()) { s.cleanups = append(s.cleanups, end) }

// Fatalf implements agenttest.T. It ends the test, like the method in package testing.
func (s *testbed) Fatalf(format string, args ...any) {
	if s.fatalMessage == "" {
		s.fatalMessage = fmt.Sprintf(format, args...)
	}
	runtime.Goexit()
}
