package redistrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Get implements trace.Store.
func (s *Store) Get(ctx context.Context, ref trace.Ref) (*troupev1.Trace, error) {
	const op = "trace.Get"
	held, err := s.redis.HGetAll(ctx, keys(ref)[0]).Result()
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	if len(held) == 0 || held["erased"] != "" {
		return nil, notFound(op, ref)
	}
	return decode(held)
}

// Load implements trace.Store.
func (s *Store) Load(ctx context.Context, ref trace.Ref) (trace.Running, error) {
	const op = "trace.Load"
	reply, err := s.load.Run(ctx, s.redis, keys(ref)[:1]).StringSlice()
	if err != nil {
		return trace.Running{}, s.redis.Fault(op, err)
	}
	if len(reply) < 2 {
		return trace.Running{}, notFound(op, ref)
	}
	held := map[string]string{}
	for field := range slices.Chunk(reply[1:], 2) {
		held[field[0]] = field[1]
	}
	if held["erased"] != "" {
		return trace.Running{}, notFound(op, ref)
	}
	record, err := decode(held)
	if err != nil {
		return trace.Running{}, err
	}
	ran, err1 := strconv.ParseInt(reply[0], 10, 64)
	timeout, err2 := number(held["timeout"])
	epoch, err3 := number(held["turn_epoch"])
	if err := errors.Join(err1, err2, err3); err != nil {
		return trace.Running{}, fmt.Errorf("%s: %s: %w", op, ref.Trace, err)
	}
	reason, stopped := held["stop"]
	return trace.Running{
		Record: record, Stopped: stopped, Reason: reason, Left: time.Duration(timeout-ran) * time.Millisecond,
		Terms: trace.Terms{
			User: held["user"], Fingerprint: held["fingerprint"], TurnEpoch: epoch,
			Timeout: time.Duration(timeout) * time.Millisecond, Credentials: held["credentials"] == "1", Labels: held["labels"], Above: held["above"],
		},
	}, nil
}

// number is that of a field, 0 when it is not there.
func number(field string) (int64, error) {
	return strconv.ParseInt(cmp.Or(field, "0"), 10, 64)
}

func decode(held map[string]string) (*troupev1.Trace, error) {
	record := &troupev1.Trace{}
	if err := proto.Unmarshal([]byte(held["record"]), record); err != nil {
		return nil, fmt.Errorf("trace record: %w", err)
	}
	last, err1 := strconv.ParseUint(held["last"], 10, 64)
	epoch, err2 := strconv.ParseInt(held["epoch"], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("trace record %s: %w", record.GetTraceId(), err)
	}
	record.LastSequence, record.OwnerEpoch, record.Owner = last, epoch, held["owner"]
	record.RootTraceId = cmp.Or(record.GetRootTraceId(), record.GetTraceId()) // one of before it was there began a run
	record.State = troupev1.TraceState_TRACE_STATE_RUNNING
	if held["ended"] != "" {
		record.State = troupev1.TraceState_TRACE_STATE_ENDED
		record.Result = &troupev1.TurnResult{}
		if err := proto.Unmarshal([]byte(held["result"]), record.Result); err != nil {
			return nil, fmt.Errorf("trace result %s: %w", record.GetTraceId(), err)
		}
		record.Quarantined = trace.Quarantined(record.GetResult())
	}
	return record, nil
}

// Events implements trace.Store.
func (s *Store) Events(ctx context.Context, ref trace.Ref, after uint64, limit int) ([]*troupev1.Event, error) {
	const op = "trace.Events"
	entries, err := s.redis.XRangeN(ctx, keys(ref)[1], strconv.FormatUint(after+1, 10)+"-0", "+", int64(limit)).Result()
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	events := make([]*troupev1.Event, 0, len(entries))
	for _, entry := range entries {
		body, _ := entry.Values["e"].(string)
		e := &troupev1.Event{}
		if err := proto.Unmarshal([]byte(body), e); err != nil {
			return nil, fmt.Errorf("%s: %s of %s: %w", op, entry.ID, ref.Trace, err)
		}
		events = append(events, e)
	}
	return events, nil
}
