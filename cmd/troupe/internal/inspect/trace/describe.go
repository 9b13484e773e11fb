package trace

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Describe is the command that prints a trace as a tree.
type Describe struct {
	remote.Query `embed:""`
	ID           string `arg:"" name:"trace" help:"Id of the trace; troupe get traces lists them." type:"trace"`
}

// Help implements kong.HelpProvider.
func (Describe) Help() string {
	return "Prints steps, attempts, iterations, model calls and tools as a tree, of a running trace as far as it is. " +
		"A step has a status: success, error with its kind, partial, pending or cancelled; a plan says how far its steps are. " +
		"A sum covers the lines below. A cost of - is unknown; a + after a cost says that a part of it is unknown."
}

// Run prints the trace as it is stored now.
func (d *Describe) Run(ctx context.Context, term console.Terminal) error {
	c, conn, err := d.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, remote.Timeout)
	defer cancel()
	trace, events, err := loadTrace(ctx, c, d.ID)
	if err != nil {
		return d.ExplainError(err)
	}
	if d.JSON {
		return printTraceJSON(term, trace, events)
	}
	var run *troupev1.ListTracesResponse
	if root := trace.GetRootTraceId(); root != "" { // empty in traces that are older than the field
		if run, err = c.ListTraces(ctx, &troupev1.ListTracesRequest{RootTraceId: root, PageSize: maxRunTraces}); err != nil {
			return d.ExplainError(err)
		}
	}
	printTree(term, trace, run.GetTraces(), events)
	return nil
}

// maxRunTraces is the maximum number of traces that are listed for a run.
const maxRunTraces = 20

// loadTrace returns a trace and its stored events. It does not wait for more events of a running trace.
func loadTrace(ctx context.Context, c *client.Client, id string) (*troupev1.Trace, []*troupev1.Event, error) {
	resp, err := c.GetTrace(ctx, &troupev1.GetTraceRequest{TraceId: id, Plan: true})
	if err != nil {
		return nil, nil, err
	}
	trace := resp.GetTrace()
	if trace.GetLastSequence() == 0 {
		return trace, nil, nil // watching would wait for the first event
	}
	var events []*troupev1.Event
	for e, err := range c.Watch(ctx, id, 0) {
		if err != nil {
			return nil, nil, err
		}
		if e.GetSequence() > 0 {
			events = append(events, e)
		}
		if e.GetSequence() >= trace.GetLastSequence() {
			break
		}
	}
	return trace, events, nil
}

// printTraceJSON prints one JSON object that contains the trace and its events in protobuf JSON.
func printTraceJSON(term console.Terminal, trace *troupev1.Trace, events []*troupev1.Event) error {
	var all struct {
		Trace  json.RawMessage   `json:"trace"`
		Events []json.RawMessage `json:"events"`
	}
	var err error
	if all.Trace, err = protojson.Marshal(trace); err != nil {
		return err
	}
	all.Events = make([]json.RawMessage, len(events))
	for i, e := range events {
		if all.Events[i], err = protojson.Marshal(e); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintln(term.Out, string(text))
	return nil
}
