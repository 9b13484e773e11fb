package identity

import (
	"fmt"
	"regexp"
)

var tenantName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// TenantForm is how the name of a tenant is written, for errors that may not quote the name.
const TenantForm = "1 to 64 of A-Z a-z 0-9 _ . -"

// CheckTenant says why a text cannot name a tenant: it is part of the names of keys.
func CheckTenant(name string) error {
	if !tenantName.MatchString(name) {
		return fmt.Errorf("%q names no tenant; it must be %s", name, TenantForm)
	}
	return nil
}
