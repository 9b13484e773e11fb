package llm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Provider opens the models whose names have its prefix.
type Provider struct {
	Prefix string // the part of a model's name before the slash
	// BarePrefixes lists beginnings of model names that belong to this provider even without its prefix, such as
	// "gpt" (CO-10).
	BarePrefixes []string
	// Open returns the model with the given full name, or an error that says what is missing, such as a key.
	Open func(name string) (Model, error)
}

// Catalog finds a model by its name. The order of its providers does not matter.
type Catalog struct{ providers map[string]Provider }

// NewCatalog returns a catalog of the given providers. It returns an error if a name could belong to two of them,
// because they have the same prefix or overlapping bare prefixes.
func NewCatalog(providers ...Provider) (*Catalog, error) {
	c := &Catalog{providers: map[string]Provider{}}
	for _, p := range providers {
		if _, ok := c.providers[p.Prefix]; ok {
			return nil, fmt.Errorf("llm: two providers have the prefix %q", p.Prefix)
		}
		for _, other := range c.providers {
			if a, b, both := findOverlap(p, other); both {
				return nil, fmt.Errorf("llm: a name may begin with %q of %s and with %q of %s", a, p.Prefix, b, other.Prefix)
			}
		}
		c.providers[p.Prefix] = p
	}
	return c, nil
}

// findOverlap returns a bare prefix of each provider such that one begins with the other.
func findOverlap(p, other Provider) (a, b string, both bool) {
	for _, a := range p.BarePrefixes {
		for _, b := range other.BarePrefixes {
			if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
				return a, b, true
			}
		}
	}
	return "", "", false
}

// Model opens the model with the given name, which has the prefix or a bare prefix of a provider. For any other
// name it returns user_invalid_input with a list of the providers (CO-9, CO-10).
func (c *Catalog) Model(name string) (Model, error) {
	if prefix, rest, slash := strings.Cut(name, "/"); slash {
		p, ok := c.providers[prefix]
		switch {
		case !ok:
			return nil, c.newUnknownModelError("model %q: no provider has the prefix %q", name, prefix)
		case rest == "":
			return nil, c.newUnknownModelError("model %q: put the name of a model after the slash", name)
		}
		return p.Open(name)
	}
	for _, p := range c.providers {
		if slices.ContainsFunc(p.BarePrefixes, func(start string) bool { return strings.HasPrefix(name, start) }) {
			return p.Open(p.Prefix + "/" + name)
		}
	}
	return nil, c.newUnknownModelError("model %q: no provider is known for it; put the prefix of one before it", name)
}

func (c *Catalog) newUnknownModelError(format string, args ...any) error {
	return failure.Newf(failure.UserInvalidInput, "llm.Model", format+"; there are %s", append(args, strings.Join(c.Prefixes(), ", "))...)
}

// Prefixes returns the sorted prefixes of the providers, each with a slash at the end.
func (c *Catalog) Prefixes() []string {
	all := make([]string, 0, len(c.providers))
	for p := range c.providers {
		all = append(all, p+"/")
	}
	slices.Sort(all)
	return all
}
