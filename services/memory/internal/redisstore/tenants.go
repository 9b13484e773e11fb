package redisstore

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/identity"
)

// tenantsKey is a zset of the tenants that ever had a session. Nobody is taken off it: it is as
// long as there are tenants.
const tenantsKey = "m:tenants"

// Tenants are all that may have sessions, sorted, for those who look after the data of all.
// Sessions that are older than the list are of the default tenant.
func (s *Store) Tenants(ctx context.Context) ([]string, error) {
	all, err := s.redis.ZRevRangeByScore(ctx, tenantsKey, &redis.ZRangeBy{Min: "-inf", Max: "+inf"}).Result()
	if err != nil {
		return nil, s.redis.Fault("memory.Tenants", err)
	}
	all = append(all, identity.DefaultTenant)
	slices.Sort(all)
	return slices.Compact(all), nil
}
