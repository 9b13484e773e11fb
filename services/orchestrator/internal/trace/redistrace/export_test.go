package redistrace

import "github.com/redis/go-redis/v9"

// Hook adds a hook between the store and Redis.
func Hook(s *Store, h redis.Hook) { s.conn.AddHook(h) }
