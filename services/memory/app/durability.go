package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore"
)

// durability asks Redis whether it can keep the word of the service, each process of it once.
// While one cannot, or was not asked yet, no turn begins. Safe for concurrent use.
type durability struct {
	store *redisstore.Store
	class redisconn.Class
	log   *zap.Logger

	mu    sync.Mutex
	once  bool            // something was asked
	asked map[string]bool // the processes that were met: whether they were asked since
	unfit error           // what the last asking found
}

// met tells which process of Redis is at the other end of a new connection: it may run with
// other settings than the one before.
func (d *durability) met(process string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.asked[process] {
		d.asked[process] = false
	}
}

// fit returns why no turn may begin; nil when one may. Modes: system_network.
func (d *durability) fit() error {
	const op = "memory.BeginTurn"
	if d.class == redisconn.D0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unfit != nil {
		return failure.Newf(failure.SystemNetwork, op, "redis at %s is less durable than --durability %s asks, and no turn begins until that is mended: %s",
			d.store.Addr(), d.class, d.unfit)
	}
	if len(d.unknown()) > 0 {
		return failure.Newf(failure.SystemNetwork, op, "no turn begins until redis at %s has told how durable it is; try again", d.store.Addr())
	}
	return nil
}

// unknown are the processes that were not asked yet.
func (d *durability) unknown() map[string]bool {
	unknown := maps.Clone(d.asked)
	maps.DeleteFunc(unknown, func(_ string, asked bool) bool { return asked })
	return unknown
}

// ask returns nil when Redis is there, lets the service do its work, and is not known to be less
// durable than it should.
func (d *durability) ask(ctx context.Context) error {
	if err := d.store.Ping(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	unknown, settled := d.unknown(), d.once && d.unfit == nil
	d.mu.Unlock()
	if len(unknown) == 0 && settled {
		return nil
	}
	err := d.store.Durable(ctx)
	weak := errors.Is(err, redisconn.ErrWeak)
	switch {
	case err == nil:
	case weak && d.class != redisconn.D0:
	case weak, errors.Is(err, redisconn.ErrUntold):
		d.log.Warn("acknowledged turns are not durable", zap.Error(err))
		err = nil
	default:
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.once, d.unfit = true, err
	for process := range unknown { // one that came meanwhile is the next
		d.asked[process] = true
	}
	if err != nil {
		return &probe.NotServingError{Reason: "is less durable than --durability asks", Cause: fmt.Errorf("--durability: %w, or ask for less than %s; until then no turn begins", err, d.class)}
	}
	return nil
}
