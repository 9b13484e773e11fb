package turn

import (
	"cmp"
	"encoding/json"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// Labels are what a caller says of a turn for its agents and tools. They are stored with the
// trace, so that who goes on with the turn has them too.
type Labels struct {
	Profile  string            `json:"profile,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`

	// Budget is what the turn may use, where that does not follow from its workflow. It is no part
	// of what the caller says.
	Budget *allowance `json:"budget,omitempty"`
}

// profile is the one that is named, or else the default (OC-7).
func (l Labels) profile() string { return cmp.Or(l.Profile, execution.DefaultProfile) }

// or is the labels, or others where there are none.
func (l Labels) or(others Labels) Labels {
	if l.Profile == "" {
		l.Profile = others.Profile
	}
	if len(l.Metadata) == 0 {
		l.Metadata = others.Metadata
	}
	return l
}

// stored is the labels as they are kept, the same for the same labels; empty when there are none.
func (l Labels) stored() string {
	if l.Profile == "" && len(l.Metadata) == 0 && l.Budget == nil {
		return ""
	}
	text, err := json.Marshal(l)
	if err != nil {
		return "" // strings can be written
	}
	return string(text)
}

// readLabels are those that were stored. What cannot be read is of nobody's.
func readLabels(stored string) (l Labels) {
	if stored != "" && json.Unmarshal([]byte(stored), &l) != nil {
		return Labels{}
	}
	return l
}
