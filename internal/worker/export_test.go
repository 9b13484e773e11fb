package worker

import "time"

// WithRegistrationTTL returns a configuration whose registrations outlive their worker by a time.
func (c Config) WithRegistrationTTL(ttl time.Duration) Config {
	c.registrationTTL = ttl
	return c
}
