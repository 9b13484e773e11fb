package worker

import "time"

// WithRegistrationTTL returns a copy of the configuration with the given TTL for registrations.
func (c Config) WithRegistrationTTL(ttl time.Duration) Config {
	c.registrationTTL = ttl
	return c
}
