package llmreplay

import "net/http"

// Writer writes a response in several pieces.
type Writer struct{ http.ResponseWriter }

// SendEvents sends each event at once. At the beginning of a response it sends the header of an event stream.
func (w *Writer) SendEvents(events ...[]byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		_, _ = w.Write(e)
		w.flush()
	}
	w.flush()
}

// CloseConnection closes the connection in the middle of a response.
func (w *Writer) CloseConnection() {
	if conn, _, err := http.NewResponseController(w.ResponseWriter).Hijack(); err == nil {
		_ = conn.Close()
	}
}

func (w *Writer) flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
