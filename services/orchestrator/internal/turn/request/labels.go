package request

import (
	"cmp"
	"encoding/json"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Labels are what a caller tells the agents and tools of a turn. They are stored with the trace, so that an
// orchestrator that takes over has them.
type Labels struct {
	Profile  string            `json:"profile,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Needs    []string          `json:"needs,omitempty"`    // what chosen agents must offer (OC-14)
	Priority *int32            `json:"priority,omitempty"` // 0 to 10 (nil means that the caller set none)
	Tags     []string          `json:"tags,omitempty"`
	// Choices holds, by number, the published choices of the turns that this one continues. The caller does not
	// set it.
	Choices map[int][]byte `json:"choices,omitempty"`

	// Budget is what the turn may use (nil means that it follows from the workflow). The caller does not set
	// it.
	Budget *Allowance `json:"budget,omitempty"`

	// Root is the trace with which the run of the turn began (empty means the turn's own trace). The caller
	// does not set it. It is stored with the record of the trace.
	Root string `json:"-"`
}

// ProfileOrDefault returns the profile that the caller named, or else the default one (OC-7).
func (l Labels) ProfileOrDefault() string { return cmp.Or(l.Profile, execution.DefaultProfile) }

// OrElse returns the labels, and the labels of another turn where they are missing. Root comes from the other
// turn, if it has one, because a continued turn stays in its run.
func (l Labels) OrElse(others Labels) Labels {
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

// LabelsOf returns the labels of a stored trace, including its root.
func LabelsOf(found trace.RunningTrace) Labels {
	l := DecodeLabels(found.Turn.Labels)
	l.Root = cmp.Or(found.Record.GetRootTraceId(), found.Record.GetTraceId())
	return l
}

// Encode returns the labels as they are stored: the same text for the same labels, empty for none.
func (l Labels) Encode() string {
	text, err := json.Marshal(l)
	if err != nil || string(text) == "{}" {
		return "" // strings and numbers can always be written
	}
	return string(text)
}

// DecodeLabels is the inverse of Encode. A text that cannot be read gives no labels.
func DecodeLabels(stored string) (l Labels) {
	if stored != "" && json.Unmarshal([]byte(stored), &l) != nil {
		return Labels{}
	}
	return l
}

// Choice returns the inherited choice with a number (nil when there is none).
func (l Labels) Choice(number int) *troupev1.RoutingDecision {
	stored, ok := l.Choices[number]
	if !ok {
		return nil
	}
	d := &troupev1.RoutingDecision{}
	if err := proto.Unmarshal(stored, d); err != nil {
		return nil // WithChoices wrote it
	}
	return d
}

// WithChoices returns the labels with these choices added, which the turn must follow.
func (l Labels) WithChoices(choices map[int]*troupev1.RoutingDecision) (Labels, error) {
	all := map[int][]byte{}
	maps.Copy(all, l.Choices)
	for number, d := range choices {
		text, err := proto.Marshal(d)
		if err != nil {
			return l, err
		}
		all[number] = text
	}
	l.Choices = all
	return l, nil
}

// WithoutChoicesFrom returns the labels without the choices from a step on, so that the turn makes them again.
func (l Labels) WithoutChoicesFrom(step int) Labels {
	l.Choices = maps.Clone(l.Choices)
	maps.DeleteFunc(l.Choices, func(_ int, text []byte) bool {
		d := &troupev1.RoutingDecision{}
		return proto.Unmarshal(text, d) != nil || int(d.GetNumber()) >= step
	})
	return l
}
