package redistrace

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

//go:embed scripts/load.lua
var loadSource string

var loadScript = redis.NewScript(loadSource)

// reader implements the reading methods of trace.Store, and trace.DecisionIndex.
type reader struct {
	conn *conn
}

// Get implements trace.Store.
func (r *reader) Get(ctx context.Context, ref trace.Ref) (*troupev1.Trace, error) {
	const op = "trace.Get"
	fields, err := r.conn.HGetAll(ctx, recordKey(ref)).Result()
	if err != nil {
		return nil, r.conn.Failure(op, err)
	}
	if len(fields) == 0 || fields["erased"] != "" {
		return nil, notFoundError(op, ref)
	}
	return decodeRecord(fields)
}

// Load implements trace.Store.
func (r *reader) Load(ctx context.Context, ref trace.Ref) (trace.RunningTrace, error) {
	const op = "trace.Load"
	reply, err := loadScript.Run(ctx, r.conn, []string{recordKey(ref)}).StringSlice()
	if err != nil {
		return trace.RunningTrace{}, r.conn.Failure(op, err)
	}
	if len(reply) < 2 {
		return trace.RunningTrace{}, notFoundError(op, ref)
	}
	fields := map[string]string{}
	for field := range slices.Chunk(reply[1:], 2) {
		fields[field[0]] = field[1]
	}
	if fields["erased"] != "" {
		return trace.RunningTrace{}, notFoundError(op, ref)
	}
	record, err := decodeRecord(fields)
	if err != nil {
		return trace.RunningTrace{}, err
	}
	elapsed, err1 := strconv.ParseInt(reply[0], 10, 64)
	timeout, err2 := parseNumberField(fields["timeout"])
	epoch, err3 := parseNumberField(fields["turn_epoch"])
	if err := errors.Join(err1, err2, err3); err != nil {
		return trace.RunningTrace{}, fmt.Errorf("%s: %s: %w", op, ref.Trace, err)
	}
	reason, stopped := fields["stop"]
	return trace.RunningTrace{
		Record: record, StopRequested: stopped, StopReason: reason, TimeLeft: time.Duration(timeout-elapsed) * time.Millisecond,
		Turn: trace.TurnInfo{
			User: fields["user"], Fingerprint: fields["fingerprint"], TurnEpoch: epoch, Timeout: time.Duration(timeout) * time.Millisecond,
			HasCredentials: fields["credentials"] == "1", Labels: fields["labels"], Parent: fields["parent"],
		},
	}, nil
}

// parseNumberField parses a field as a number (0 when the field is missing).
func parseNumberField(field string) (int64, error) {
	return strconv.ParseInt(cmp.Or(field, "0"), 10, 64)
}

// decodeRecord decodes the hash of a record.
func decodeRecord(fields map[string]string) (*troupev1.Trace, error) {
	record := &troupev1.Trace{}
	if err := proto.Unmarshal([]byte(fields["record"]), record); err != nil {
		return nil, fmt.Errorf("trace record: %w", err)
	}
	last, err1 := strconv.ParseUint(fields["last"], 10, 64)
	epoch, err2 := strconv.ParseInt(fields["epoch"], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("trace record %s: %w", record.GetTraceId(), err)
	}
	record.LastSequence, record.OwnerEpoch, record.Owner = last, epoch, fields["owner"]
	record.RootTraceId = cmp.Or(record.GetRootTraceId(), record.GetTraceId()) // an older record without a root began its run
	record.State = troupev1.TraceState_TRACE_STATE_RUNNING
	if fields["ended"] != "" {
		record.State = troupev1.TraceState_TRACE_STATE_ENDED
		record.Result = &troupev1.TurnResult{}
		if err := proto.Unmarshal([]byte(fields["result"]), record.Result); err != nil {
			return nil, fmt.Errorf("trace result %s: %w", record.GetTraceId(), err)
		}
		record.Quarantined = trace.IsQuarantined(record.GetResult())
	}
	return record, nil
}

// Events implements trace.Store.
func (r *reader) Events(ctx context.Context, ref trace.Ref, after uint64, limit int) ([]*troupev1.Event, error) {
	const op = "trace.Events"
	entries, err := r.conn.XRangeN(ctx, eventsKey(ref), strconv.FormatUint(after+1, 10)+"-0", "+", int64(limit)).Result()
	if err != nil {
		return nil, r.conn.Failure(op, err)
	}
	events := make([]*troupev1.Event, 0, len(entries))
	for _, entry := range entries {
		e, err := decodeEvent(op, entry)
		if err != nil {
			return nil, fmt.Errorf("trace %s: %w", ref.Trace, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// decodeEvent decodes an entry of the event stream.
func decodeEvent(op string, entry redis.XMessage) (*troupev1.Event, error) {
	body, _ := entry.Values["e"].(string)
	e := &troupev1.Event{}
	if err := proto.Unmarshal([]byte(body), e); err != nil {
		return nil, fmt.Errorf("%s: event %s: %w", op, entry.ID, err)
	}
	return e, nil
}

// pageSize is how many events or pointers are read at once.
const pageSize = 200

// eachPage calls do for each page of the events of a trace.
func (r *reader) eachPage(ctx context.Context, ref trace.Ref, do func([]*troupev1.Event)) error {
	for after := uint64(0); ; {
		page, err := r.Events(ctx, ref, after, pageSize)
		if err != nil {
			return err
		}
		do(page)
		if len(page) < pageSize {
			return nil
		}
		after = page[len(page)-1].GetSequence()
	}
}
