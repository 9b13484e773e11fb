package turn

import (
	"cmp"
	"encoding/json"

	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Labels are what a caller says of a turn for its agents and tools. They are stored with the
// trace, so that who goes on with the turn has them too.
type Labels struct {
	Profile  string            `json:"profile,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Needs    []string          `json:"needs,omitempty"`    // of those who are chosen (OC-14)
	Priority *int32            `json:"priority,omitempty"` // 0 to 10; nil: nobody named one
	Tags     []string          `json:"tags,omitempty"`
	// Choices are those of the turns that this one goes on with, as they were told; by their
	// numbers. They are no caller's.
	Choices map[int][]byte `json:"choices,omitempty"`

	// Budget is what the turn may use, where that does not follow from its workflow. It is no part
	// of what the caller says.
	Budget *allowance `json:"budget,omitempty"`

	// Root is the trace with which the run began that the turn belongs to; empty: its own. No
	// caller says it by itself, and it is stored with the record of the trace.
	Root string `json:"-"`
}

// profile is the one that is named, or else the default (OC-7).
func (l Labels) profile() string { return cmp.Or(l.Profile, execution.DefaultProfile) }

// or is the labels, or others where there are none. A turn that goes on stays in its run.
func (l Labels) or(others Labels) Labels {
	if l.Profile == "" {
		l.Profile = others.Profile
	}
	if len(l.Metadata) == 0 {
		l.Metadata = others.Metadata
	}
	if len(l.Needs) == 0 {
		l.Needs = others.Needs
	}
	l.Priority = cmp.Or(l.Priority, others.Priority)
	if len(l.Tags) == 0 {
		l.Tags = others.Tags
	}
	if len(l.Choices) == 0 {
		l.Choices = others.Choices
	}
	l.Root = cmp.Or(others.Root, l.Root)
	return l
}

// labelsOf are those of a trace that is stored, its run included.
func labelsOf(found trace.Running) Labels {
	l := readLabels(found.Terms.Labels)
	l.Root = cmp.Or(found.Record.GetRootTraceId(), found.Record.GetTraceId())
	return l
}

// rootOf is the run of a turn that another one asks for: that of the turn above, or else the turn
// above itself. Empty: nobody else asks.
func rootOf(above *troupev1.Parent) string { return cmp.Or(above.GetRootTraceId(), above.GetTraceId()) }

// stored is the labels as they are kept, the same for the same labels; empty when there are none.
func (l Labels) stored() string {
	text, err := json.Marshal(l)
	if err != nil || string(text) == "{}" {
		return "" // what is of strings can be written
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
