package memorywire

import (
	"github.com/troupe-dev/troupe/internal/wire/convert"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Protocols maps the conflict protocols of a configuration to their protobuf values.
var Protocols = convert.Enum[ownership.Protocol, troupev1.ConfigProtocol]{
	ownership.Reject: troupev1.ConfigProtocol_CONFIG_PROTOCOL_REJECT,
	ownership.Merge:  troupev1.ConfigProtocol_CONFIG_PROTOCOL_MERGE,
}

// ConfigToProto converts the configuration of an agent.
func ConfigToProto(c memory.Configuration) *troupev1.Config {
	return &troupev1.Config{Version: c.Version, Values: valuesToProto(c.Values), Protocol: Protocols.ToProto(c.Protocol)}
}

// ConfigFromProto is the inverse of ConfigToProto.
func ConfigFromProto(c *troupev1.Config) memory.Configuration {
	return memory.Configuration{Version: c.GetVersion(), Values: valuesFromProto(c.GetValues()), Protocol: Protocols.FromProto(c.GetProtocol())}
}

// ConfigChangeToProto converts a configuration change to a request.
func ConfigChangeToProto(c memory.ConfigChange) *troupev1.PutConfigRequest {
	return &troupev1.PutConfigRequest{Agent: c.Agent, Base: c.Base, Protocol: Protocols.ToProto(c.Protocol), Delta: valuesToProto(c.Delta)}
}

// ConfigChangeFromProto is the inverse of ConfigChangeToProto.
func ConfigChangeFromProto(r *troupev1.PutConfigRequest) memory.ConfigChange {
	return memory.ConfigChange{Agent: r.GetAgent(), Base: r.GetBase(), Protocol: Protocols.FromProto(r.GetProtocol()), Delta: valuesFromProto(r.GetDelta())}
}
