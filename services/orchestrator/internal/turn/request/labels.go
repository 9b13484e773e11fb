package request

import (
	"cmp"
	"encoding/json"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Labels is the information that a caller passes to the agents and tools of a turn. Labels are stored with the
// trace, so that an orchestrator that takes over has them.
type Labels struct {
	Profile  string            `json:"profile,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Needs    []string          `json:"needs,omitempty"`    // capabilities that chosen agents must have (OC-14)
	Priority *int32            `json:"priority,omitempty"` // 0 to 10 (nil means that the caller set none)
	Tags     []string          `json:"tags,omitempty"`
	// MaxIterations overrides the limit of each agent (0 keeps it, CO-6).
	MaxIterations int32 `json:"max_iterations,omitempty"`
	// ErrorStrategy overrides what the workflow says about failed steps (empty keeps it, OC-19).
	ErrorStrategy workflow.ErrorStrategy `json:"error_strategy,omitempty"`
	// Choices holds, by number, the published choices of the turns that this turn continues. Callers cannot set
	// it.
	Choices map[int][]byte `json:"choices,omitempty"`

	// Budget is the allowance of the turn (nil means that it follows from the workflow). Callers cannot set it.
	Budget *Allowance `json:"budget,omitempty"`

	// Ancestors are the targets of the turns that led to this one, the first of the run first. Callers set it with the
	// parent.
	Ancestors []string `json:"ancestors,omitempty"`

	// Root is the root trace of the run (empty means the turn's own trace). Callers cannot set it. It is stored
	// with the record of the trace.
	Root string `json:"-"`
}

// ProfileOrDefault returns the profile that the caller set, or else the default profile (OC-7).
func (l Labels) ProfileOrDefault() string { return cmp.Or(l.Profile, execution.DefaultProfile) }

// WithDefaultsFrom returns the labels, with missing ones taken from another turn. Root always comes from the other
// turn, if it has one, because a continued turn stays in its run.
func (l Labels) WithDefaultsFrom(others Labels) Labels {
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
	l.MaxIterations = cmp.Or(l.MaxIterations, others.MaxIterations)
	l.ErrorStrategy = cmp.Or(l.ErrorStrategy, others.ErrorStrategy)
	if len(l.Tags) == 0 {
		l.Tags = others.Tags
	}
	if len(l.Choices) == 0 {
		l.Choices = others.Choices
	}
	if len(l.Ancestors) == 0 {
		l.Ancestors = others.Ancestors
	}
	l.Root = cmp.Or(others.Root, l.Root)
	return l
}

// LabelsFromTrace returns the labels of a stored trace, including its root.
func LabelsFromTrace(found trace.RunningTrace) Labels {
	l := DecodeLabels(found.Turn.Labels)
	l.Root = cmp.Or(found.Record.GetRootTraceId(), found.Record.GetTraceId())
	return l
}

// Encode encodes the labels for the store. Equal labels have equal encodings, and empty labels the empty one.
func (l Labels) Encode() string {
	text, err := json.Marshal(l)
	if err != nil || string(text) == "{}" {
		return "" // strings and numbers can always be written
	}
	return string(text)
}

// DecodeLabels is the inverse of Encode. It returns empty labels for a text that it cannot decode.
func DecodeLabels(stored string) (l Labels) {
	if stored != "" && json.Unmarshal([]byte(stored), &l) != nil {
		return Labels{}
	}
	return l
}

// InheritedChoice returns the inherited choice with the given number (nil when there is none).
func (l Labels) InheritedChoice(number int) *troupev1.RoutingDecision {
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

// WithChoices returns the labels with the given choices added. The turn must follow these choices.
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

// WithoutChoicesFrom returns the labels without the choices about the given step and later ones, so that the turn
// makes these choices again.
func (l Labels) WithoutChoicesFrom(step int) Labels {
	l.Choices = maps.Clone(l.Choices)
	maps.DeleteFunc(l.Choices, func(_ int, text []byte) bool {
		d := &troupev1.RoutingDecision{}
		return proto.Unmarshal(text, d) != nil || int(d.GetNumber()) >= step
	})
	return l
}
