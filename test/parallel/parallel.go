// Package parallel lets packages whose tests wait more than they compute run more of them at once.
package parallel

import (
	"flag"
	"strconv"
)

// AtLeast lets n parallel tests of this process run at once, or more if -parallel says so. Without it, as many
// run as there are CPUs. A TestMain calls it before it runs the tests.
func AtLeast(n int) {
	if !flag.Parsed() { // a second parse would undo the change of an earlier call
		flag.Parse()
	}
	limit := flag.Lookup("test.parallel").Value
	if now, err := strconv.Atoi(limit.String()); err == nil && now >= n {
		return
	}
	_ = limit.Set(strconv.Itoa(n)) // the flag takes every number
}
