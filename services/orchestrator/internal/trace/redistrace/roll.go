package redistrace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// rollKeys are those of the roll: one for all traces, for it is asked as a whole.
var rollKeys = []string{"o:{running}:roll", "o:{running}:stops"}

// maxStops is about how many wishes are kept, for owners that did not hear of them yet.
const maxStops = 1000

// maxBeat is how many traces are told with one script: it must not hold up the others.
const maxBeat = 1000

func member(ref trace.Ref) string { return ref.Tenant + "/" + ref.Trace }

func refOf(member string) trace.Ref {
	tenant, id, _ := strings.Cut(member, "/")
	return trace.Ref{Tenant: tenant, Trace: id}
}

// Beat implements trace.Roll.
func (s *Store) Beat(ctx context.Context, b trace.Beat) (trace.Heard, error) {
	heard := trace.Heard{Until: cmp.Or(b.After, "0-0")}
	for {
		part := b
		part.Mine, part.Ended, part.After = b.Mine[:min(maxBeat, len(b.Mine))], b.Ended[:min(maxBeat, len(b.Ended))], heard.Until
		b.Mine, b.Ended = b.Mine[len(part.Mine):], b.Ended[len(part.Ended):]
		last := len(b.Mine)+len(b.Ended) == 0
		if !last {
			part.Take = 0 // what is the caller's own comes first
		}
		if err := s.tell(ctx, part, &heard); err != nil || last {
			return heard, err
		}
	}
}

// beatArgs are those of the script. Without After it hears nothing.
func beatArgs(b trace.Beat) []any {
	args := []any{b.Vouch.Milliseconds(), b.Take, b.After, len(b.Mine)}
	for _, ref := range slices.Concat(b.Mine, b.Ended) {
		args = append(args, member(ref))
	}
	return args
}

func (s *Store) tell(ctx context.Context, b trace.Beat, heard *trace.Heard) error {
	const op = "trace.Beat"
	reply, err := s.beat.Run(ctx, s.redis, rollKeys, beatArgs(b)...).Slice()
	if err != nil {
		return s.redis.Fault(op, err)
	}
	if len(reply) != 2 {
		return fmt.Errorf("%s: reply of %d parts", op, len(reply))
	}
	taken, _ := reply[0].([]any)
	for _, t := range taken {
		heard.Taken = append(heard.Taken, refOf(fmt.Sprint(t)))
	}
	stops, _ := reply[1].([]any)
	for _, stop := range stops {
		entry, _ := stop.([]any)
		if len(entry) != 2 {
			return fmt.Errorf("%s: a stop of %d parts", op, len(entry))
		}
		said, _ := entry[1].([]any)
		if len(said) != 4 {
			return fmt.Errorf("%s: a stop with %d fields", op, len(said))
		}
		heard.Until = fmt.Sprint(entry[0])
		heard.Stops = append(heard.Stops, trace.Stop{Ref: refOf(fmt.Sprint(said[1])), Reason: fmt.Sprint(said[3])})
	}
	return nil
}

// Free implements trace.Roll.
func (s *Store) Free(ctx context.Context, ref trace.Ref) error {
	if err := s.redis.ZAdd(ctx, rollKeys[0], redis.Z{Score: 0, Member: member(ref)}).Err(); err != nil {
		return s.redis.Fault("trace.Free", err)
	}
	return nil
}

// Stop implements trace.Roll. It is noted at the trace, for an owner to come, and told to
// that of now. One that is not kept needs no end.
func (s *Store) Stop(ctx context.Context, stop trace.Stop) error {
	const op = "trace.Stop"
	there, err := s.stop.Run(ctx, s.redis, keys(stop.Ref)[:1], stop.Reason).Bool()
	if err != nil || !there {
		return s.fault(op, err)
	}
	err = s.redis.XAdd(ctx, &redis.XAddArgs{
		Stream: rollKeys[1], MaxLen: maxStops, Approx: true, Values: []any{"trace", member(stop.Ref), "reason", stop.Reason},
	}).Err()
	if err != nil {
		return s.redis.Fault(op, err)
	}
	return nil
}
