package llm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Provider opens the models of one prefix.
type Provider struct {
	Prefix string // what comes before the slash in a model's name
	// Open returns the model of the given full name, or an error that says what is
	// missing, such as a key.
	Open func(name string) (Model, error)
}

// Catalog finds a model by its name. It does not depend on the order of its providers.
type Catalog struct{ providers map[string]Provider }

// NewCatalog returns a catalog of the given providers. Two with one prefix are an error.
func NewCatalog(providers ...Provider) (*Catalog, error) {
	c := &Catalog{providers: map[string]Provider{}}
	for _, p := range providers {
		if _, ok := c.providers[p.Prefix]; ok {
			return nil, fmt.Errorf("llm: two providers have the prefix %q", p.Prefix)
		}
		c.providers[p.Prefix] = p
	}
	return c, nil
}

// Model opens the model of the given name. A prefix that is not known gives
// user_invalid_input naming the providers there are (CO-9, CO-10).
func (c *Catalog) Model(name string) (Model, error) {
	prefix, _, _ := strings.Cut(name, "/")
	p, ok := c.providers[prefix]
	if !ok {
		return nil, failure.Newf(failure.UserInvalidInput, "llm.Model",
			"model %q: no provider has the prefix %q; there are %s", name, prefix, strings.Join(c.Prefixes(), ", "))
	}
	return p.Open(name)
}

// Prefixes are those of the providers, sorted, each with its slash.
func (c *Catalog) Prefixes() []string {
	all := make([]string, 0, len(c.providers))
	for p := range c.providers {
		all = append(all, p+"/")
	}
	slices.Sort(all)
	return all
}
