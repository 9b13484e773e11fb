package redistrace

import "github.com/redis/go-redis/v9"

// Hook has a test between the store and Redis.
func Hook(s *Store, h redis.Hook) { s.redis.AddHook(h) }
