// Package contract checks what a worker sends for a step against the contract of AgentService.
package contract

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/internal/customevent"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// ErrBroken is wrapped by the errors of items that break the rules of their messages or the limits of a step.
var ErrBroken = errors.New("broke the contract")

// Checker checks the items of one attempt of a step, in order.
type Checker struct {
	request      *troupev1.ExecuteStepRequest
	customEvents customevent.Counter
}

// NewChecker returns a checker for an attempt.
func NewChecker(req *troupev1.ExecuteStepRequest) *Checker { return &Checker{request: req} }

// Check returns an error that wraps ErrBroken, or one with the mode state_violation if the item names another trace,
// session, turn or step than the request.
func (c *Checker) Check(item *troupev1.ExecuteStepResponse) error {
	if err := rpc.Validate(item); err != nil {
		return newBrokenError(err)
	}
	if err := checkPlacement(c.request, item); err != nil {
		return err
	}
	custom := item.GetEvent().GetCustom()
	if custom == nil {
		return nil
	}
	if err := c.customEvents.Admit(event.Custom{Name: custom.GetName(), Data: json.RawMessage(custom.GetData())}); err != nil {
		return newBrokenError(err)
	}
	return nil
}

func newBrokenError(err error) error {
	return fmt.Errorf("%w: %s", ErrBroken, failure.PlainMessage(err))
}
