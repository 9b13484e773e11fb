// Package turns begins, commits and ends turns. Every write is one Lua script that also checks the epoch of the
// caller.
package turns

import (
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/index"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/outbox"
)

// Retention is how long a closed turn is kept, so that a repeated request gets the same result.
const Retention = memory.Retention

// Config holds the limits of turns.
type Config struct {
	// MaxMessages and MaxBytes limit the size of a session.
	MaxMessages, MaxBytes int64
	// KeepJournals is how long journals are kept after the commits of their steps (0 means that they are deleted).
	KeepJournals time.Duration
	// LeastEpoch returns the lowest epoch that a turn may get. BeginTurn calls it before and after its script, and
	// fails if it returns an error.
	LeastEpoch func() (int64, error)
}

// Turns implements memory.Turns. It is safe for concurrent use.
type Turns struct {
	db      *db.DB
	index   *index.Index
	outbox  *outbox.Outbox
	journal *journal.Journal
	cfg     Config
}

// New returns a turn store backed by d.
func New(d *db.DB, x *index.Index, o *outbox.Outbox, j *journal.Journal, cfg Config) *Turns {
	return &Turns{d, x, o, j, cfg}
}

// maxSteps is the largest number of steps in a turn. decodeTurn checks the stored number, because it would loop
// almost forever over a wrong one.
const maxSteps = 50

// decodeTurn decodes a turn from its hash.
func decodeTurn(id string, fields map[string]string) (session.Turn, error) {
	t := session.Turn{
		ID:       id,
		Trace:    fields["trace"],
		Number:   int(db.ParseNumber(fields["number"])),
		Outcome:  session.Outcome(fields["outcome"]),
		Epoch:    db.ParseNumber(fields["epoch"]),
		Attempt:  int(db.ParseNumber(fields["attempt"])),
		Sequence: db.ParseNumber(fields["seq"]),

		Continues: fields["continues"], OriginTurnID: fields["origin"],
	}
	for n := range min(db.ParseNumber(fields["steps"]), maxSteps) {
		stored, ok := fields["result"+strconv.FormatInt(n+1, 10)]
		if !ok {
			continue
		}
		var result troupev1.StepResult
		if err := proto.Unmarshal([]byte(stored), &result); err != nil {
			return t, fmt.Errorf("result of step %d of turn %s: %w", n+1, id, err)
		}
		decoded := wire.ResultFromProto(&result)
		decoded.Inherited = decoded.Inherited || fields["sha"+strconv.FormatInt(n+1, 10)] == "inherited"
		t.Steps = append(t.Steps, decoded)
	}
	if stored, ok := fields["failure"]; ok {
		var f troupev1.Failure
		if err := proto.Unmarshal([]byte(stored), &f); err != nil {
			return t, fmt.Errorf("failure of turn %s: %w", id, err)
		}
		t.Failure = grpcfailure.FromProto(&f)
	}
	var answers troupev1.Answers
	if err := proto.Unmarshal([]byte(fields["answers"]), &answers); err != nil {
		return t, fmt.Errorf("answers of turn %s: %w", id, err)
	}
	t.Answers = wire.AnswersFromProto(answers.GetAnswers())
	return t, nil
}

// limitExceededError returns the error for the script reply {"session_full", messages, bytes}.
func (t *Turns) limitExceededError(op string, ref session.Ref, r db.Reply) error {
	return failure.Newf(failure.SessionFull, op,
		"session %s holds %s messages of %d bytes in all; a session may hold %d messages and %d bytes: compact it or begin a new one",
		ref.Session, r.Text(1), db.ParseNumber(r.Text(2)), t.cfg.MaxMessages, t.cfg.MaxBytes).
		With("messages", r.Text(1)).With("max_messages", strconv.FormatInt(t.cfg.MaxMessages, 10)).
		With("bytes", r.Text(2)).With("max_bytes", strconv.FormatInt(t.cfg.MaxBytes, 10))
}
