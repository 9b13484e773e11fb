package redistrace

import "github.com/redis/go-redis/v9"

// AddHook adds a hook between the store and Redis.
func AddHook(s *Store, h redis.Hook) { s.conn.AddHook(h) }
