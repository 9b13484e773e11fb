module github.com/troupe-dev/troupe/bench/adk

go 1.26.5

require (
	github.com/troupe-dev/troupe v0.0.0
	google.golang.org/adk/v2 v2.2.0
)

replace github.com/troupe-dev/troupe => ../..
