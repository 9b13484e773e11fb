package operate

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// doubt is a desire that may be recorded and shall not be, and what shall be instead.
type doubt struct{ wrong, right registry.Desire }

// want records what is wanted; this orchestrator's routing knows it when it returns. When it
// fails, some of it may be recorded all the same: that is taken back once it is seen.
func (o *Operator) want(ctx context.Context, desires ...registry.Desire) error {
	if len(desires) == 0 {
		return nil
	}
	before := make([]registry.Desire, len(desires))
	for i, d := range desires {
		before[i] = o.roster.Desired().Get(d.Key)
	}
	err := o.desires.Want(ctx, desires...)
	if err == nil {
		o.roster.Desired().Put(desires...)
		return nil
	}
	for i, d := range desires {
		o.distrust(d, before[i])
	}
	if ctx.Err() != nil {
		return err
	}
	return failure.New(failure.SystemNetwork, "operate", "the registry does not answer, so no worker was asked; what may have been recorded is taken back. Try again when the registry is there").Because(err)
}

// takeBack records what is right in place of what is wrong. When that cannot be done now, it
// is done once the registry is there.
func (o *Operator) takeBack(ctx context.Context, wrong, right registry.Desire) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	o.distrust(wrong, right)
	o.correct(ctx, wrong.Key)
}

// distrust remembers a desire that is to be replaced when it is seen.
func (o *Operator) distrust(wrong, right registry.Desire) {
	if right.Want == "" {
		right = running(wrong.Key)
	}
	o.mu.Lock()
	o.doubts[wrong.Key] = doubt{wrong, right}
	o.mu.Unlock()
	select {
	case o.doubtful <- struct{}{}:
	default: // told already
	}
}

// running is the desire of an instance that shall run.
func running(key registry.Key) registry.Desire {
	return registry.Desire{Key: key, Want: registry.Run, Since: time.Now()}
}

// correct replaces what is recorded of an instance if it is what shall not be, and forgets
// the doubt when it is not, or not any more.
func (o *Operator) correct(ctx context.Context, key registry.Key) {
	o.mu.Lock()
	d, doubted := o.doubts[key]
	o.mu.Unlock()
	recorded := o.roster.Desired().Get(key)
	switch {
	case !doubted:
		return
	case same(recorded, d.wrong):
		if err := o.desires.Want(ctx, d.right); err != nil {
			o.log.Warn("what is wanted of an instance is not taken back yet",
				zap.String("agent", key.Agent), zap.String("instance", key.ID), zap.Error(err))
			return
		}
		o.roster.Desired().Put(d.right)
	case !recorded.Since.After(d.wrong.Since):
		return // it may still show up
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.doubts[key] == d {
		delete(o.doubts, key)
	}
}

// same compares what was wanted with what is recorded of it.
func same(a, b registry.Desire) bool {
	return a.Want == b.Want && a.Reason == b.Reason && a.Since.Equal(b.Since)
}

// tendPeriod is how often records are looked at when nothing changes.
const tendPeriod = 5 * time.Second

// tend takes back what shall not be recorded, and forgets what was wanted of instances that
// are gone. Any orchestrator may forget: the registry keeps what is wanted of an instance
// that is registered.
func (o *Operator) tend(ctx context.Context) {
	ticks := time.NewTicker(tendPeriod)
	defer ticks.Stop()
	for {
		unclaimed, changed := o.roster.Unclaimed()
		for _, d := range unclaimed {
			if err := o.desires.Forget(ctx, d.Key); err != nil {
				o.log.Debug("not forgotten", zap.Error(err))
			}
		}
		o.mu.Lock()
		doubted := slices.Collect(maps.Keys(o.doubts))
		o.mu.Unlock()
		for _, key := range doubted {
			o.correct(ctx, key)
		}
		select {
		case <-changed:
		case <-ticks.C:
		case <-o.doubtful:
		case <-ctx.Done():
			return
		}
	}
}
