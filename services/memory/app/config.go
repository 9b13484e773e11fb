package app

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/pkg/telemetry"
)

// Config is every setting of the memory service. The tags are the flags, the environment
// variables, the defaults and the help text at once.
type Config struct {
	GRPCAddr   string        `name:"grpc-addr" help:"Address to serve gRPC on." default:"127.0.0.1:7401" env:"TROUPE_GRPC_ADDR"`
	HTTPAddr   string        `name:"http-addr" help:"Address of the plain HTTP port: /livez /readyz /startupz /metrics." default:"127.0.0.1:7481" env:"TROUPE_HTTP_ADDR"`
	Redis      string        `help:"URL of the Redis that keeps sessions: redis://[user:password@]host:port/db; ?addr=host:port names more nodes of a Cluster." default:"redis://127.0.0.1:6379/0" env:"TROUPE_REDIS"`
	Grace      time.Duration `help:"How long calls in flight may take to end when the service stops." default:"10s" env:"TROUPE_GRACE"`
	Reflection bool          `help:"Serve gRPC reflection." env:"TROUPE_REFLECTION"`

	Telemetry telemetry.Config `embed:""`
}

// Validate names the first setting that cannot be.
func (c *Config) Validate() error {
	if c.Grace < 0 {
		return fmt.Errorf("--grace: %s is below zero", c.Grace)
	}
	return nil
}
