package loop

import (
	"context"

	"github.com/troupe-dev/troupe/internal/loop/toolprogress"
)

// attend runs tools concurrently and emits what they report meanwhile; nil is a call that does not run.
func (r *run) attend(ctx context.Context, all ...*work) {
	var tasks []toolprogress.Task
	for _, w := range all {
		if w != nil {
			tasks = append(tasks, toolprogress.Task{CallID: w.asked.ID, Tool: w.asked.Name, Run: w.run})
		}
	}
	toolprogress.Watch(ctx, r.Events, tasks...)
}
