package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// unavailableReplies are the prefixes of error replies that mean that Redis cannot serve now.
var unavailableReplies = []string{
	"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOREPLICAS", "BUSY", "max number of clients",
}

// credentialReplies are the prefixes of error replies that mean that Redis rejects the credentials or does not
// permit the command. Redis reports a long command of an unauthenticated client as a protocol error.
var credentialReplies = []string{"NOPERM", "NOAUTH", "WRONGPASS", "Protocol error: unauthenticated"}

// hasErrorPrefix reports whether err is an error reply of Redis that starts with one of the prefixes.
func hasErrorPrefix(err error, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// unsentError is the error of a failed connection attempt, so no command was sent.
type unsentError struct{ error }

func (u unsentError) Unwrap() error { return u.error }

// isUnsent reports whether err means that no command was sent. It includes TLS alerts, because Redis rejects a
// client certificate only after the handshake.
func isUnsent(err error) bool {
	if _, ok := errors.AsType[unsentError](err); ok {
		return true
	}
	alert, ok := errors.AsType[*net.OpError](err)
	return ok && alert.Op == "remote error"
}

// Failure converts an error of the client into a failure that a caller can act on. Redis's reply is only its
// cause, which goes to the log. Errors of the context are kept (guarantees F6, F8).
func (c *Conn) Failure(op string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", op, err)
	}
	cause := fmt.Errorf("redis at %s: %w", c.addr, err)
	if errors.Is(err, errNotReplicated) {
		return failure.New(failure.SystemNetwork, op, "the write happened and was not replicated in time; repeat the call").Because(cause)
	}
	if isUnsent(err) { // but an earlier command of the call may have written
		return failure.New(failure.SystemNetwork, op, "no connection to the store can be made; try again").Because(cause)
	}
	if redis.IsOOMError(err) {
		return failure.New(failure.ResourceMemory, op,
			"the store has no memory left and nothing was written; delete what is old or raise its maxmemory").Because(cause)
	}
	if redis.HasErrorPrefix(err, "MISCONF") {
		return failure.New(failure.SystemDisk, op,
			"the store cannot write to its disk and nothing was written; see the log of redis").Because(cause)
	}
	if hasErrorPrefix(err, unavailableReplies) {
		return failure.New(failure.SystemNetwork, op,
			"the store does not serve at the moment and nothing was written; try again").Because(cause)
	}
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return failure.New(failure.SystemNetwork, op,
			"all connections to the store are in use and nothing was written; try again").Because(cause)
	}
	if hasErrorPrefix(err, credentialReplies) {
		return failure.New(failure.Unknown, op,
			"the store does not accept the credentials of the service and nothing was written; the log of the service has the cause").Because(cause)
	}
	if _, replied := errors.AsType[redis.Error](err); replied {
		return failure.New(failure.Unknown, op, "the store rejected the operation; the log of the service has the cause").Because(cause)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return failure.New(failure.SystemTimeout, op,
			"the store did not answer in time and a write may have happened; repeat the call").Because(cause)
	}
	return failure.New(failure.SystemNetwork, op,
		"the store cannot be reached and a write may have happened; repeat the call").Because(cause)
}
