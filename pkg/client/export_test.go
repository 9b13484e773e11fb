package client

import "time"

// SetPatience makes a client give up sooner.
func (c *Client) SetPatience(d time.Duration) { c.patience = d }
