package testrun

import (
	"context"
	"fmt"
	"runtime"
)

// testbed is what package agenttest needs of a test.
type testbed struct {
	context  func() context.Context
	cleanups []func()
	fatal    string
}

// runTest runs a test to its end, and returns why it did not come there, if it did not.
func runTest(ctx context.Context, test func(*testbed)) (fatal string) {
	s := &testbed{context: func() context.Context { return ctx }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.cleanUp()
		test(s)
	}()
	<-done
	return s.fatal
}

// cleanUp runs what Cleanup was given, last first; each runs whatever the others do.
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

// Fatalf implements agenttest.T: the test ends here, as one of package testing does.
func (s *testbed) Fatalf(format string, args ...any) {
	if s.fatal == "" {
		s.fatal = fmt.Sprintf(format, args...)
	}
	runtime.Goexit()
}
