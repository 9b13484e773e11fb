package check

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// MemoryService is the fake memory service to which workers under test commit. It keeps turns in memory, validates
// commits by the same rules as the real service, and records every CommitStep and LoadRounds. A check can change its behavior for
// each session. It is safe for concurrent use.
type MemoryService struct {
	troupev1.UnimplementedMemoryServiceServer
	address string

	mu       sync.Mutex
	sessions map[string]*Session
}

// Session is a session with its only turn. Its exported fields say how the service answers CommitStep and
// LoadRounds for the session.
type Session struct {
	turnID       string
	epoch        int64
	baseSequence int64 // sequence of the session's last message

	RemainingOutages int                    // number of further commits that are answered with UNAVAILABLE
	RejectMode       failure.Mode           // mode with which every commit is rejected (empty means none)
	HoldUntil        chan struct{}          // answers to commits wait until this is closed (nil means no wait)
	Rounds           []*troupev1.StepRounds // what LoadRounds returns
	RoundOutages     int                    // number of further LoadRounds calls that are answered with UNAVAILABLE
	calls            []*recordedCall        // every CommitStep call, including rejected ones
	loads            []*LoadCall
	journal          []*troupev1.JournalEntry
	commits          map[int32]storedCommit // stored commits, by step
}

type recordedCall struct {
	Request     *troupev1.CommitStepRequest
	Credentials []string // turn credentials sent with the call
	receivedAt  time.Time
}

// LoadCall is a call of LoadRounds.
type LoadCall struct {
	Request     *troupev1.LoadRoundsRequest
	Credentials []string // turn credentials sent with the call
}

type storedCommit struct {
	request      *troupev1.CommitStepRequest
	lastSequence int64
}

// ServeMemory serves a memory service on a loopback port until stop is called.
func ServeMemory(ctx context.Context) (m *MemoryService, stop func(), err error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, failure.New(failure.SystemNetwork, "conformance.Run", "cannot open a loopback port for the memory service").Because(err)
	}
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{Internal: true})
	if err != nil {
		_ = lis.Close()
		return nil, nil, err
	}
	m = &MemoryService{address: lis.Addr().String(), sessions: map[string]*Session{}}
	troupev1.RegisterMemoryServiceServer(server, m)
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ProcessPart(lis, 0).Run(serving, func() {})
	}()
	return m, func() { cancel(); <-ended }, nil
}

// openSession creates the session of a step with the given behavior.
func (m *MemoryService) openSession(req *troupev1.ExecuteStepRequest, l Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.turnID, l.epoch, l.baseSequence = req.GetTurnId(), req.GetEpoch(), req.GetBaseSequence()
	l.commits = map[int32]storedCommit{}
	m.sessions[req.GetSessionId()] = &l
}

// CommitCalls returns every CommitStep call of a session so far, including rejected ones.
func (m *MemoryService) CommitCalls(session string) []*recordedCall {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*recordedCall(nil), m.sessions[session].calls...)
}

// StoredCommit returns the only stored commit of a session, or nil if there is none.
func (m *MemoryService) StoredCommit(session string) *troupev1.CommitStepRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.sessions[session].commits {
		return c.request
	}
	return nil
}

// LoadCalls returns every LoadRounds call of a session so far, including rejected ones.
func (m *MemoryService) LoadCalls(session string) []*LoadCall {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.sessions[session].loads)
}

// StoredRounds returns the rounds of the only stored commit of a session, with the content that they take from the journal
// of the step.
func (m *MemoryService) StoredRounds(session string) []*troupev1.Message {
	commit := m.StoredCommit(session)
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*troupev1.Message
	for _, r := range commit.GetRounds() {
		message := proto.CloneOf(r.GetMessage())
		for _, e := range m.sessions[session].journal {
			if e.GetNumber() == r.GetEntry() && r.GetEntry() > 0 && e.GetPhase() == troupev1.JournalPhase_JOURNAL_PHASE_DONE {
				message.Parts, message.ToolCalls = e.GetReply().GetParts(), e.GetReply().GetToolCalls()
				if e.GetTool() != "" {
					message.Parts = []*troupev1.Part{{Content: &troupev1.Part_Text{Text: e.GetText()}}}
				}
			}
		}
		all = append(all, message)
	}
	return all
}

// Journal implements troupev1.MemoryServiceServer.
func (m *MemoryService) Journal(_ context.Context, req *troupev1.JournalRequest) (*troupev1.JournalResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[req.GetSessionId()]
	if s == nil {
		return nil, failure.New(failure.NotFound, "memory.Record", "no such session")
	}
	s.journal = append(s.journal, req.GetEntries()...)
	return &troupev1.JournalResponse{}, nil
}

// LoadRounds implements troupev1.MemoryServiceServer.
func (m *MemoryService) LoadRounds(ctx context.Context, req *troupev1.LoadRoundsRequest) (*troupev1.LoadRoundsResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[req.GetSessionId()]
	if s == nil {
		return nil, failure.New(failure.NotFound, "memory.LoadRounds", "no such session")
	}
	s.loads = append(s.loads, &LoadCall{req, metadata.ValueFromIncomingContext(ctx, turnctx.CredentialKey)})
	if s.RoundOutages > 0 {
		s.RoundOutages--
		return nil, failure.New(failure.SystemNetwork, "memory.LoadRounds", "the conformance kit simulates an outage")
	}
	return &troupev1.LoadRoundsResponse{Steps: s.Rounds}, nil
}

// CommitStep implements troupev1.MemoryServiceServer.
func (m *MemoryService) CommitStep(ctx context.Context, req *troupev1.CommitStepRequest) (*troupev1.CommitStepResponse, error) {
	hold, last, err := m.storeCommit(req, metadata.ValueFromIncomingContext(ctx, turnctx.CredentialKey))
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	return &troupev1.CommitStepResponse{LastSequence: last}, nil
}

// storeCommit records the call and stores the commit unless it is invalid. If it returns a channel, the caller
// must delay its answer until the channel is closed.
func (m *MemoryService) storeCommit(req *troupev1.CommitStepRequest, shown []string) (hold chan struct{}, last int64, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reject := func(mode failure.Mode, message string) error {
		return failure.New(mode, "memory.CommitStep", message)
	}
	s := m.sessions[req.GetSessionId()]
	if s == nil {
		return nil, 0, reject(failure.NotFound, "no such session")
	}
	s.calls = append(s.calls, &recordedCall{req, shown, time.Now()})
	known, repeated := s.commits[req.GetResult().GetStep()]
	switch {
	case s.RemainingOutages > 0:
		s.RemainingOutages--
		return nil, 0, reject(failure.SystemNetwork, "the conformance kit simulates an outage")
	case s.RejectMode != "":
		return nil, 0, reject(s.RejectMode, "the conformance kit rejects the commit")
	case req.GetTurnId() != s.turnID:
		return nil, 0, reject(failure.TurnNotOpen, "turn_id: no such turn is open")
	case req.GetEpoch() != s.epoch:
		return nil, 0, reject(failure.Fenced, "epoch: the turn has another epoch")
	case repeated && proto.Equal(known.request, req):
		return s.HoldUntil, known.lastSequence, nil
	case repeated, req.GetBaseSequence() != s.baseSequence:
		return nil, 0, reject(failure.BaseMismatch, "base_sequence: the session has newer messages")
	}
	s.baseSequence += int64(len(req.GetMessages()))
	s.commits[req.GetResult().GetStep()] = storedCommit{req, s.baseSequence}
	return s.HoldUntil, s.baseSequence, nil
}
