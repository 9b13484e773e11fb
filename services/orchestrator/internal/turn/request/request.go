// Package request defines what a caller asks for: the request itself, its labels, and the budget that it may use.
// All of these are values, and the package accesses no store.
package request

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
)

// BusyPolicy decides what happens to a request while another turn of its session is open (guarantee F14).
type BusyPolicy int

// The busy policies. The zero BusyPolicy is Reject.
const (
	Reject    BusyPolicy = iota // the request fails with session_busy
	Enqueue                     // the request waits in the queue of the session
	Interrupt                   // the request cancels the open turn, and is queued before the requests with Enqueue
)

// Policies decide what happens to a turn for reasons outside of it. They are not part of the fingerprint.
type Policies struct {
	OnBusy             BusyPolicy // what to do while another turn of the session is open
	CancelOnDisconnect bool       // whether the turn ends when its clients have gone (guarantee F15)
}

// Request is a request to run one turn.
type Request struct {
	session.Ref        // the session of the turn
	User        string // owner of the session (empty means no user)
	RequestID   string
	Text        string
	Files       []conversation.Attachment // sent with Text, which may then be empty
	Answers     []execution.Answer        // answers to pending calls, instead of Text; they continue the turn with these calls
	Target      string                    // workflow or agent (empty means the default workflow, or the target of the turn that is continued)
	Timeout     time.Duration             // timeout of the turn (0 means the workflow's, or else the runner's)
	Policies
	Source      Source           // an earlier trace to resume or to fork
	Parent      *troupev1.Parent // place in the turn that asks for this one (nil means that no agent asks); package scope has checked what a worker says here
	Auth        execution.Auth   // actor and credentials for the steps of this turn only (LP-18); never stored or published
	ParentTrace string           // trace of the turn that waits for this one (empty means none)
	Budget      *budget.Limits   // lowers the workflow's limits (nil keeps them)
	Labels                       // for agents and tools
}

// TurnID returns the id of the request's turn. A repeated request has the same id.
func (r Request) TurnID() string { return session.TurnID(r.Ref, r.RequestID) }

// IsAnswer reports whether the request answers pending calls.
func (r Request) IsAnswer() bool { return len(r.Answers) > 0 }

// Fingerprint returns a digest of the content of the request. A repeated request must have the same id and the
// same fingerprint. The digest excludes Auth, because a repeated request may carry a newer token, and it excludes
// the caller.
func (r Request) Fingerprint() string {
	digest := sha256.New()
	_, _ = fmt.Fprint(digest, r.Target, "\x00", r.Text)
	for _, f := range r.Files {
		_, _ = fmt.Fprintf(digest, "\x00%q %q %x", f.Name, f.MediaType, sha256.Sum256(f.Data))
	}
	for _, a := range r.Answers {
		_, _ = fmt.Fprintf(digest, "\x00%q %q %q", a.ID, a.Verdict, a.Text)
	}
	if r.Source != (Source{}) {
		_, _ = fmt.Fprintf(digest, "\x00from %+v", r.Source)
	}
	labels := r.Labels
	labels.Budget = nil
	if text := labels.Encode(); text != "" {
		_, _ = fmt.Fprint(digest, "\x00", text)
	}
	return hex.EncodeToString(digest.Sum(nil)[:16])
}

// Source is an earlier trace that a turn resumes or forks (OC-27). The zero Source means none.
type Source struct {
	Trace  string
	Step   int  // the first step that a fork runs again
	IsFork bool // the turn gets a new session; otherwise it replaces the failed turn
}

// IsResume reports whether the turn resumes a failed one.
func (s Source) IsResume() bool { return s.Trace != "" && !s.IsFork }

// Proto converts the source to its message (nil for the zero Source).
func (s Source) Proto() *troupev1.From {
	if s == (Source{}) {
		return nil
	}
	return &troupev1.From{TraceId: s.Trace, Step: int32(s.Step), Fork: s.IsFork}
}

// SourceFromProto is the inverse of Source.Proto.
func SourceFromProto(f *troupev1.From) Source {
	return Source{Trace: f.GetTraceId(), Step: int(f.GetStep()), IsFork: f.GetFork()}
}

// RootFromParent returns the root trace of a parent's run: the root that the parent names, or else the parent's
// own trace (empty without a parent).
func RootFromParent(parent *troupev1.Parent) string {
	if root := parent.GetRootTraceId(); root != "" {
		return root
	}
	return parent.GetTraceId()
}
