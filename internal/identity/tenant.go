package identity

import (
	"fmt"
	"regexp"
)

var tenantName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// TenantForm describes the form of a valid tenant name. Errors use it because they must not quote the name.
const TenantForm = "1 to 64 of A-Z a-z 0-9 _ . -"

// CheckTenant returns an error if a tenant name is invalid. The name must be safe as a part of store keys.
func CheckTenant(name string) error {
	if !tenantName.MatchString(name) {
		return fmt.Errorf("%q is not a tenant name; it must be %s", name, TenantForm)
	}
	return nil
}
