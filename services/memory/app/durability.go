package app

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/redisconn"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore"
)

// durability asks Redis whether it can keep the word of the service. One goroutine uses it.
type durability struct {
	store *redisstore.Store
	class redisconn.Class
	log   *zap.Logger

	asked bool // since Redis was away last
}

// ask returns nil when Redis is there, and is not known to be less durable than it should.
func (d *durability) ask(ctx context.Context) error {
	if err := d.store.Ping(ctx); err != nil {
		d.asked = false
		return err
	}
	if d.asked {
		return nil
	}
	err := d.store.Durable(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return err
	case d.class == redisconn.D0 || errors.Is(err, redisconn.ErrUntold):
		d.log.Warn("acknowledged turns are not durable", zap.Error(err))
	default:
		return fmt.Errorf("--durability: %w, or ask for less than %s", err, d.class)
	}
	d.asked = true
	return nil
}
