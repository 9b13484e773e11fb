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

// durabilityChecker checks once per Redis process whether the process is as durable as the service promises. No
// turn begins while a process is less durable or not checked yet. It is safe for concurrent use.
type durabilityChecker struct {
	store *redisstore.Store
	class redisconn.DurabilityClass
	log   *zap.Logger

	mu               sync.Mutex
	hasChecked       bool            // whether Redis was checked at least once
	checkedProcesses map[string]bool // by Redis process; false for a known process that is not checked yet
	lastErr          error           // error of the last check
}

// recordProcess records the Redis process that a new connection has reached. A new process is checked before turns
// begin, because its settings may differ.
func (d *durabilityChecker) recordProcess(process string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.checkedProcesses[process] {
		d.checkedProcesses[process] = false
	}
}

// checkTurn returns an error while no turn may begin. Modes: system_network.
func (d *durabilityChecker) checkTurn() error {
	const op = "memory.BeginTurn"
	if d.class == redisconn.D0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lastErr != nil {
		return failure.Newf(failure.SystemNetwork, op, "redis at %s is less durable than --durability %s requires, and no turn begins until that is fixed: %s",
			d.store.Addr(), d.class, d.lastErr)
	}
	if len(d.uncheckedProcesses()) > 0 {
		return failure.Newf(failure.SystemNetwork, op, "no turn begins until redis at %s has said how durable it is; try again", d.store.Addr())
	}
	return nil
}

// uncheckedProcesses returns the Redis processes whose durability is not checked yet.
func (d *durabilityChecker) uncheckedProcesses() map[string]bool {
	unchecked := maps.Clone(d.checkedProcesses)
	maps.DeleteFunc(unchecked, func(_ string, checked bool) bool { return checked })
	return unchecked
}

// checkRedis returns nil if Redis is reachable, permits the commands that the service uses, and is not known to be
// less durable than required.
func (d *durabilityChecker) checkRedis(ctx context.Context) error {
	if err := d.store.Ping(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	unchecked, done := d.uncheckedProcesses(), d.hasChecked && d.lastErr == nil
	d.mu.Unlock()
	if len(unchecked) == 0 && done {
		return nil
	}
	err := d.store.CheckDurability(ctx)
	weak := errors.Is(err, redisconn.ErrNotDurable)
	switch {
	case err == nil:
	case weak && d.class != redisconn.D0:
	case weak, errors.Is(err, redisconn.ErrDurabilityUnknown):
		d.log.Warn("acknowledged turns are not durable", zap.Error(err))
		err = nil
	default:
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hasChecked, d.lastErr = true, err
	for process := range unchecked { // a process that connected in the meantime is checked next time
		d.checkedProcesses[process] = true
	}
	if err != nil {
		return &probe.NotServingError{
			Reason: "is less durable than --durability requires",
			Cause:  fmt.Errorf("--durability: %w, or ask for less than %s; until then no turn begins", err, d.class),
		}
	}
	return nil
}
