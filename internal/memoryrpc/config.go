package memoryrpc

import (
	"context"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// GetConfig implements memory.Configs.
func (s *configs) GetConfig(ctx context.Context, agent string) (memory.Configuration, error) {
	r, err := s.service.GetConfig(ctx, &troupev1.GetConfigRequest{Agent: agent})
	if err != nil {
		return memory.Configuration{}, grpcfailure.FromStatus("memory.GetConfig", err)
	}
	return memorywire.ConfigFromProto(r.GetConfig()), nil
}

// PutConfig implements memory.Configs. It rejects a value that cannot be stored without calling the service.
func (s *configs) PutConfig(ctx context.Context, c memory.ConfigChange) (memory.Configuration, error) {
	const op = "memory.PutConfig"
	if err := c.Check(op); err != nil {
		return memory.Configuration{}, err
	}
	r, err := s.service.PutConfig(ctx, memorywire.ConfigChangeToProto(c))
	if err != nil {
		return memory.Configuration{}, grpcfailure.FromStatus(op, err)
	}
	return memorywire.ConfigFromProto(r.GetConfig()), nil
}
