package db

import (
	"context"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/caller"
)

// StatusFields are the fields of a session's meta hash that CheckReader reads.
var StatusFields = []string{"deleted", "schema", "epoch", "open"}

// ReadMeta returns the meta hash of a session. It returns an error if the caller may not read the session.
func (d *DB) ReadMeta(ctx context.Context, op string, ref session.Ref) (map[string]string, error) {
	meta, err := d.HGetAll(ctx, Key(ref, "meta")).Result()
	if err != nil {
		return nil, d.Failure(op, err)
	}
	return meta, CheckReader(ctx, op, ref, meta)
}

// CheckReader returns an error if the caller may not read the session with this meta hash. A worker may read only
// while its turn is open and its epoch is the latest.
func CheckReader(ctx context.Context, op string, ref session.Ref, meta map[string]string) error {
	h, err := caller.WorkerFromContext(ctx), CheckSession(op, ref, meta)
	switch {
	case err != nil || h.Epoch == 0:
		return err
	case meta["epoch"] != strconv.FormatInt(h.Epoch, 10):
		return TurnErrorFromReply(op, h.Lease, Reply{"fenced", meta["epoch"]})
	case meta["open"] == "":
		return TurnErrorFromReply(op, h.Lease, Reply{"turn_over"})
	}
	return nil
}

// CheckSession returns an error if the session with this meta hash cannot be read by any caller.
func CheckSession(op string, ref session.Ref, meta map[string]string) error {
	switch {
	case meta["deleted"] != "":
		return deletedError(op, ref)
	case meta["schema"] == "":
		return NewSessionNotFoundError(op, ref)
	case meta["schema"] != Schema:
		return checkSessionReply(op, ref, Reply{"schema", meta["schema"]})
	}
	return nil
}

// CheckHolder returns an error if the worker in the context no longer holds its turn. Without a worker in the
// context, it returns nil without a call to Redis.
func (d *DB) CheckHolder(ctx context.Context, op string) error {
	h := caller.WorkerFromContext(ctx)
	if h.Epoch == 0 {
		return nil
	}
	stored, err := d.HMGet(ctx, Key(h.Ref, "meta"), StatusFields...).Result()
	if err != nil {
		return d.Failure(op, err)
	}
	return CheckReader(ctx, op, h.Ref, Reply(stored).FieldsByName(StatusFields))
}
