package testrun

import (
	"context"
	"fmt"
	"runtime"
)

// stage is what package agenttest needs of a test.
type stage struct {
	context func() context.Context
	ends    []func()
	fatal   string
}

// perform runs a test to its end, and returns why it did not come there, if it did not.
func perform(ctx context.Context, test func(*stage)) (fatal string) {
	s := &stage{context: func() context.Context { return ctx }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.end()
		test(s)
	}()
	<-done
	return s.fatal
}

// end runs what Cleanup was given, last first; each runs whatever the others do.
func (s *stage) end() {
	if len(s.ends) == 0 {
		return
	}
	last := s.ends[len(s.ends)-1]
	s.ends = s.ends[:len(s.ends)-1]
	defer s.end()
	last()
}

// Helper implements agenttest.T.
func (s *stage) Helper() {}

// Context implements agenttest.T.
func (s *stage) Context() context.Context { return s.context() }

// Cleanup implements agenttest.T.
func (s *stage) Cleanup(end func()) { s.ends = append(s.ends, end) }

// Fatalf implements agenttest.T: the test ends here, as one of package testing does.
func (s *stage) Fatalf(format string, args ...any) {
	if s.fatal == "" {
		s.fatal = fmt.Sprintf(format, args...)
	}
	runtime.Goexit()
}
