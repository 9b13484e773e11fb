package identity

import (
	"fmt"
	"regexp"
)

var tenantName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// TenantForm describes a valid tenant name, for errors that must not quote the name.
const TenantForm = "1 to 64 of A-Z a-z 0-9 _ . -"

// CheckTenant returns an error for an invalid tenant name. The name becomes part of store keys.
func CheckTenant(name string) error {
	if !tenantName.MatchString(name) {
		return fmt.Errorf("%q is no tenant name; it must be %s", name, TenantForm)
	}
	return nil
}
