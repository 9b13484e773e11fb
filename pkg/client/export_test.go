package client

import "time"

// SetPatience sets how long a client waits for progress before it gives up.
func (c *Client) SetPatience(d time.Duration) { c.patience = d }
