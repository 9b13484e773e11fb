package dispatch

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// known reads what a worker sends without the fields that nobody here knows: no rule bounds those,
// and what happens in a step is kept and passed on (guarantees S9).
type known struct{ encoding.CodecV2 }

func newKnown() known { return known{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (known) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("dispatch: a worker cannot answer with a %T", v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(whole.ReadOnlyData(), m)
}
