package redistrace

import (
	"context"
	_ "embed"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/turnctx"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

//go:embed scripts/fence.lua
var fenceSource string

//go:embed scripts/remove.lua
var removeSource string

var (
	fenceScript  = redis.NewScript(fenceSource)
	removeScript = redis.NewScript(removeSource)
)

// parallelErasures is how many traces of a session are erased at once.
const parallelErasures = 16

// eraser implements trace.Eraser.
type eraser struct {
	conn   *conn
	reader *reader
}

// EraseTraces implements trace.Eraser.
func (e *eraser) EraseTraces(ctx context.Context, ref session.Ref) error {
	const op = "trace.EraseTraces"
	subject := sessionSubject(ref.Tenant, ref.Session)
	list, _ := sessionKeys(subject)
	for {
		ids, err := e.conn.ZRevRange(ctx, list, 0, maxBatch-1).Result()
		if err != nil || len(ids) == 0 {
			return e.conn.failure(op, err)
		}
		if err := e.removeStops(ctx, op, ref.Tenant, ids); err != nil {
			return err
		}
		work, within := errgroup.WithContext(ctx)
		work.SetLimit(parallelErasures)
		for _, id := range ids {
			work.Go(func() error { return e.eraseTrace(within, subject, trace.Ref{Tenant: ref.Tenant, Trace: id}) })
		}
		if err := work.Wait(); err != nil {
			return err
		}
	}
}

// eraseTrace removes a trace. The order allows an interrupted call to be repeated: it fences the owner, removes
// the entries in all lists, and then the data. Last it removes the entry in the list of the session, through which
// a repeated call finds the trace.
func (e *eraser) eraseTrace(ctx context.Context, subject trace.Subject, ref trace.Ref) error {
	const op = "trace.EraseTraces"
	had, err := e.fenceTrace(ctx, op, ref)
	if err != nil {
		return err
	}
	decisions, err := e.removeFromLists(ctx, op, subject, ref, had)
	if err != nil {
		return err
	}
	keys := append(traceKeys(ref), childrenKey(ref), followersKey(ref))
	counts, err := removeScript.Run(ctx, e.conn, keys, decisions, markRetention.Milliseconds()).StringSlice()
	if err != nil {
		return e.conn.failure(op, err)
	}
	list, mark := sessionKeys(subject)
	traces := 1
	if counts[0] == "0" { // the trace was never claimed
		traces = 0
	}
	err = addRemovedCountsScript.Run(ctx, e.conn, []string{mark, list},
		ref.Trace, trace.KindTraces, traces, trace.KindEvents, counts[0], trace.KindDecisions, counts[1]).Err()
	return e.conn.failure(op, err)
}

// fencedTrace holds the data of a trace at the time when it was fenced.
type fencedTrace struct {
	root     string // the trace with which its run began (empty when unknown)
	user     string
	children []string // child sessions
}

// fenceTrace fences the owner of a trace, so that it can write nothing more.
func (e *eraser) fenceTrace(ctx context.Context, op string, ref trace.Ref) (fencedTrace, error) {
	reply, err := fenceScript.Run(ctx, e.conn, []string{recordKey(ref), childrenKey(ref)}, markRetention.Milliseconds()).Slice()
	if err != nil {
		return fencedTrace{}, e.conn.Failure(op, err)
	}
	var had fencedTrace
	body, _ := reply[0].(string)
	record := &troupev1.Trace{}
	if err := proto.Unmarshal([]byte(body), record); err == nil {
		had.root = record.GetRootTraceId()
	}
	had.user, _ = reply[3].(string)
	children, _ := reply[4].([]any)
	for _, c := range children {
		id, _ := c.(string)
		had.children = append(had.children, id)
	}
	return had, nil
}

// removeFromLists removes a trace from all lists except the list of its session, and removes the session from the
// list of its user. It returns how many decisions of the trace the index contained.
func (e *eraser) removeFromLists(ctx context.Context, op string, subject trace.Subject, ref trace.Ref, had fencedTrace) (decisions int, _ error) {
	pointers := map[string][]any{}
	err := e.reader.eachPage(ctx, ref, func(page []*troupev1.Event) {
		for key, entries := range decisionPointers(ref, page) {
			for _, entry := range entries {
				pointers[key] = append(pointers[key], entry.Member)
			}
			decisions += len(entries)
		}
	})
	if err != nil {
		return 0, err
	}
	_, err = e.conn.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range slices.Sorted(maps.Keys(pointers)) {
			p.ZRem(ctx, key, pointers[key]...)
		}
		p.ZRem(ctx, indexKey(ref.Tenant), ref.Trace)
		p.ZRem(ctx, quarantineKey(ref.Tenant), ref.Trace)
		p.ZRem(ctx, openKey, openMember(ref))
		if had.root != "" {
			p.ZRem(ctx, runKey(ref.Tenant, had.root), ref.Trace)
		}
		if had.user != "" {
			p.ZRem(ctx, userSessionsKey(ref.Tenant, had.user), subject.Session)
		}
		return nil
	})
	return decisions, e.conn.failure(op, err)
}

// removeStops removes the stop requests for traces, with their reasons.
func (e *eraser) removeStops(ctx context.Context, op, tenant string, ids []string) error {
	stops, err := e.conn.XRange(ctx, stopsKey, "-", "+").Result()
	if err != nil {
		return e.conn.failure(op, err)
	}
	erased := map[string]bool{}
	for _, id := range ids {
		erased[openMember(trace.Ref{Tenant: tenant, Trace: id})] = true
	}
	var remove []string
	for _, stop := range stops {
		if member, _ := stop.Values["trace"].(string); erased[member] {
			remove = append(remove, stop.ID)
		}
	}
	if len(remove) == 0 {
		return nil
	}
	return e.conn.failure(op, e.conn.XDel(ctx, stopsKey, remove...).Err())
}

// ChildSessions implements trace.Eraser. The id of a child session begins with a digest of its parent, so other
// entries are ignored. An agent that calls as a client, without a credential of its turn, adds no session to the
// list. The events of the traces are therefore read as well.
func (e *eraser) ChildSessions(ctx context.Context, ref session.Ref) ([]string, error) {
	const op = "trace.ChildSessions"
	list, _ := sessionKeys(sessionSubject(ref.Tenant, ref.Session))
	ids, err := e.conn.ZRevRange(ctx, list, 0, -1).Result()
	if err != nil {
		return nil, e.conn.Failure(op, err)
	}
	children, prefix := map[string]bool{}, turnctx.ChildSessionPrefix(ref.Session)
	add := func(id string) {
		if strings.HasPrefix(id, prefix) {
			children[id] = true
		}
	}
	for _, id := range ids {
		parent := trace.Ref{Tenant: ref.Tenant, Trace: id}
		had, err := e.fenceTrace(ctx, op, parent)
		if err != nil {
			return nil, err
		}
		for _, child := range had.children {
			add(child)
		}
		err = e.reader.eachPage(ctx, parent, func(page []*troupev1.Event) {
			for _, event := range page {
				add(event.GetSubtaskStarted().GetSessionId())
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(children)), nil
}
