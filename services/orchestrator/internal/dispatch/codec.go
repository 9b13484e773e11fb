package dispatch

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// strictCodec drops unknown fields from the messages of workers. No rule limits the size of unknown fields, but
// events are stored and sent to clients (guarantee S9).
type strictCodec struct{ encoding.CodecV2 }

func newStrictCodec() strictCodec { return strictCodec{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (strictCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("dispatch: a worker cannot answer with a %T", v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(whole.ReadOnlyData(), m)
}
