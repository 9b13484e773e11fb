module example.org/outside

go 1.26.0

// The test replaces this file by one with the requirements of the main module, so that it never needs a tidy.
require github.com/troupe-dev/troupe v0.0.0

replace github.com/troupe-dev/troupe => ../../..
