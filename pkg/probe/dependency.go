package probe

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/process"
)

// How often a dependency is asked while it is there, and how long it may take to answer.
const (
	askEvery   = time.Second
	answerTime = time.Second
)

// Dependency is something that a process cannot serve without. It makes the process
// unready while it is away, and never ends it.
type Dependency struct {
	Condition string // on the board
	Address   string // for people; without credentials
	// Ask returns nil when it is there and serves.
	Ask func(context.Context) error
	// Back, if set, is called each time that it is there again.
	Back func(context.Context)
}

// DependencyPart keeps the board's word on a dependency, and says in the log when that
// changes. It is ready at once when wait is false, and else when the dependency answers
// for the first time.
func DependencyPart(board *Board, log *zap.Logger, d Dependency, wait bool) process.Part {
	log = log.With(zap.String("dependency", d.Condition), zap.String("address", d.Address))
	return process.Part{Name: d.Condition, Grace: 2 * answerTime, Run: func(ctx context.Context, ready func()) error {
		if !wait {
			ready()
		}
		pace := failure.NewPace()
		told := false
		for ctx.Err() == nil {
			err := d.answers(ctx)
			switch {
			case ctx.Err() != nil:
			case err != nil:
				if board.Set(d.Condition, fmt.Errorf("%s cannot be reached", d.Address)) || !told {
					log.Warn("waiting for a dependency", zap.Error(err))
				}
				told = true
				_ = pace.Wait(ctx) // it ends early only when ctx does
			default:
				pace.Reset()
				if board.Set(d.Condition, nil) {
					log.Info("dependency is there")
					if d.Back != nil {
						d.Back(ctx)
					}
				}
				told = true
				ready()
				pause(ctx, askEvery)
			}
		}
		return nil
	}}
}

func (d Dependency) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return d.Ask(ctx)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
