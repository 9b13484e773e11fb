// Package instancewire converts registrations and lifecycle values of instances between Go values and protobuf
// messages.
package instancewire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/wire/convert"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var instanceStates = convert.Enum[lifecycle.State, troupev1.InstanceState]{
	lifecycle.Uninitialized: troupev1.InstanceState_INSTANCE_STATE_UNINITIALIZED,
	lifecycle.Initializing:  troupev1.InstanceState_INSTANCE_STATE_INITIALIZING,
	lifecycle.Ready:         troupev1.InstanceState_INSTANCE_STATE_READY,
	lifecycle.Busy:          troupev1.InstanceState_INSTANCE_STATE_BUSY,
	lifecycle.Paused:        troupev1.InstanceState_INSTANCE_STATE_PAUSED,
	lifecycle.ShuttingDown:  troupev1.InstanceState_INSTANCE_STATE_SHUTTING_DOWN,
	lifecycle.Terminated:    troupev1.InstanceState_INSTANCE_STATE_TERMINATED,
}

// StateToProto converts the state of an instance. An unknown state becomes INSTANCE_STATE_UNSPECIFIED.
func StateToProto(s lifecycle.State) troupev1.InstanceState {
	return instanceStates.ToProto(s)
}

// StateFromProto converts the state of an instance. A value that this version does not know becomes the empty
// state. An instance with the empty state gets no steps.
func StateFromProto(s troupev1.InstanceState) lifecycle.State {
	return instanceStates.FromProto(s)
}

// InstanceToProto converts a registration.
func InstanceToProto(in registry.Instance) *troupev1.Instance {
	return &troupev1.Instance{
		InstanceId:  in.ID,
		Agent:       in.Agent,
		Address:     in.Address,
		Version:     in.Version,
		Description: in.Description,
		State:       StateToProto(in.State),
		Capacity:    int32(in.Capacity),
		Incarnation: in.Incarnation,
		Started:     convert.TimeToProto(in.Started),

		Capabilities: in.Capabilities,
		Tools:        toolsToProto(in.Tools),
		Config:       memorywire.Protocols.ToProto(in.ConfigProtocol),
	}
}

// InstanceFromProto converts a registration. Nil becomes the zero Instance.
func InstanceFromProto(in *troupev1.Instance) registry.Instance {
	return registry.Instance{
		ID:          in.GetInstanceId(),
		Agent:       in.GetAgent(),
		Address:     in.GetAddress(),
		Version:     in.GetVersion(),
		Description: in.GetDescription(),
		State:       StateFromProto(in.GetState()),
		Capacity:    int(in.GetCapacity()),
		Incarnation: in.GetIncarnation(),
		Started:     convert.TimeFromProto(in.GetStarted()),

		Capabilities:   in.GetCapabilities(),
		Tools:          instanceTools(in.GetTools()),
		ConfigProtocol: memorywire.Protocols.FromProto(in.GetConfig()),
	}
}

func toolsToProto(tools []registry.Tool) []*troupev1.InstanceTool {
	var all []*troupev1.InstanceTool
	for _, t := range tools {
		all = append(all, &troupev1.InstanceTool{Name: t.Name, Capabilities: t.Capabilities})
	}
	return all
}

func instanceTools(tools []*troupev1.InstanceTool) []registry.Tool {
	var all []registry.Tool
	for _, t := range tools {
		all = append(all, registry.Tool{Name: t.GetName(), Capabilities: t.GetCapabilities()})
	}
	return all
}

// MarshalInstance encodes a registration for storage. The encoding is JSON, so that an operator can read it with
// etcdctl.
func MarshalInstance(in registry.Instance) (string, error) {
	value, err := protojson.Marshal(InstanceToProto(in))
	if err != nil {
		return "", fmt.Errorf("instance %s of agent %s: %w", in.ID, in.Agent, err)
	}
	return string(value), nil
}

// UnmarshalInstance decodes the output of MarshalInstance. It ignores fields and states that this version does
// not know, because a newer worker may have written them.
func UnmarshalInstance(value []byte) (registry.Instance, error) {
	var in troupev1.Instance
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(value, &in); err != nil {
		return registry.Instance{}, fmt.Errorf("stored instance: %w", err)
	}
	return InstanceFromProto(&in), nil
}
