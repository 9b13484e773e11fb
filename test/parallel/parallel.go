// Package parallel raises the number of parallel tests for packages whose tests wait more than they compute.
package parallel

import (
	"flag"
	"strconv"
)

// SetMinimum lets at least n parallel tests of this process run at once. A higher value of the -parallel flag
// remains in force. The default is one per CPU. A TestMain calls it before it runs the tests.
func SetMinimum(n int) {
	if !flag.Parsed() { // a second parse would undo the change of an earlier call
		flag.Parse()
	}
	limit := flag.Lookup("test.parallel").Value
	if now, err := strconv.Atoi(limit.String()); err == nil && now >= n {
		return
	}
	_ = limit.Set(strconv.Itoa(n)) // the flag accepts every number
}
