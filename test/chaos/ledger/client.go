package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Client posts calls to a ledger. It is safe for concurrent use.
type Client struct {
	URL    string
	Worker string // id of the instance that calls
}

// Post posts a call and returns its receipt.
func (c Client) Post(ctx context.Context, call Call) (string, error) {
	call.Worker = c.Worker
	body, err := json.Marshal(call)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", call.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(resp.Body)
		return "", fmt.Errorf("the ledger said %s: %s", resp.Status, said)
	}
	var answer Reply
	err = json.NewDecoder(resp.Body).Decode(&answer)
	return answer.Receipt, err
}
