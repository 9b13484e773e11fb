package console

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"

	"github.com/alecthomas/kong"
)

var tracePattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

// decodeTraceID parses a trace id and rejects an invalid one before the command connects to the mesh.
func decodeTraceID(in *kong.DecodeContext, to reflect.Value) error {
	var id string
	if err := in.Scan.PopValueInto("trace", &id); err != nil {
		return err
	}
	if !tracePattern.MatchString(id) {
		return errors.New("want 32 hex digits; troupe get traces lists them")
	}
	to.SetString(id)
	return nil
}

// maxStepNumber is the highest number that a step can have.
const maxStepNumber = 50

// decodeStepNumber parses the number of a step (0 means none).
func decodeStepNumber(in *kong.DecodeContext, to reflect.Value) error {
	var text string
	if err := in.Scan.PopValueInto("step", &text); err != nil {
		return err
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 || n > maxStepNumber {
		return fmt.Errorf("%q is not a step; want a number from 1 to %d, as troupe describe trace shows it", text, maxStepNumber)
	}
	to.SetInt(n)
	return nil
}
