package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
)

// maxAnswerBytes limits the size of an answer that is not streamed.
const maxAnswerBytes = 32 << 20

// toEventStream replaces the body of a response that is one JSON document by the same answer as a stream of events.
// Some servers with this provider's format ignore the request for a stream.
func toEventStream(res *http.Response) error {
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "application/json" {
		return nil
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	document, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		return err
	}
	events, err := eventsFromDocument(document)
	if err != nil {
		return err
	}
	res.Header.Set("Content-Type", "text/event-stream")
	res.Body = io.NopCloser(bytes.NewReader(events))
	return nil
}

// eventsFromDocument returns the events of a message, or of an error.
func eventsFromDocument(document []byte) ([]byte, error) {
	var message struct {
		Type         string            `json:"type"`
		Content      []json.RawMessage `json:"content"`
		StopReason   json.RawMessage   `json:"stop_reason"`
		StopSequence json.RawMessage   `json:"stop_sequence"`
		StopDetails  json.RawMessage   `json:"stop_details"`
		Usage        json.RawMessage   `json:"usage"`
	}
	if err := json.Unmarshal(document, &message); err != nil {
		return nil, err
	}
	if message.Type == "error" {
		return newEvent("error", json.RawMessage(document))
	}
	type object = map[string]any
	all := []object{{"type": "message_start", "message": object{"usage": message.Usage}}}
	for i, block := range message.Content {
		all = append(all, object{"type": "content_block_start", "index": i, "content_block": block}, object{"type": "content_block_stop", "index": i})
	}
	if len(message.StopReason) > 0 {
		delta := object{"stop_reason": message.StopReason, "stop_sequence": message.StopSequence, "stop_details": message.StopDetails}
		all = append(all, object{"type": "message_delta", "delta": delta, "usage": message.Usage}, object{"type": "message_stop"})
	}
	var stream []byte
	for _, fields := range all {
		event, err := newEvent(fields["type"], fields)
		if err != nil {
			return nil, err
		}
		stream = append(stream, event...)
	}
	return stream, nil
}

// newEvent returns a server-sent event.
func newEvent(kind, fields any) ([]byte, error) {
	data, err := json.Marshal(fields)
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, data), err
}
