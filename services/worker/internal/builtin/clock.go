package builtin

import (
	"cmp"
	"context"
	"time"
	_ "time/tzdata" // images have no time zone database

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// CurrentTime is the name of the tool that returns the current time.
const CurrentTime = "current_time"

// clockSettings has the settings under "with".
type clockSettings struct {
	TimeZone string `yaml:"timeZone"` // default for calls that name none, such as Europe/Berlin (empty means UTC)
}

// clockArguments has the arguments of a call.
type clockArguments struct {
	TimeZone string `json:"time_zone,omitempty" jsonschema:"an IANA time zone such as Europe/Berlin or America/New_York; the usual one if absent"`
}

func newClock(s clockSettings) (tool.Tool, error) {
	s.TimeZone = cmp.Or(s.TimeZone, "UTC")
	if _, err := loadZone(s.TimeZone); err != nil {
		return nil, failure.Newf(failure.UserInvalidInput, "builtin.Tool",
			"with.timeZone: there is no time zone %q; use a name such as Europe/Berlin", s.TimeZone)
	}
	t, err := tool.Func(CurrentTime, "Tells the current date, time and day of the week in a time zone. It is "+s.TimeZone+" unless another one is given.",
		func(_ context.Context, in clockArguments) (string, error) {
			name := cmp.Or(in.TimeZone, s.TimeZone)
			where, err := loadZone(name)
			if err != nil {
				return "", failure.Newf(failure.AgentValidation, CurrentTime,
					"there is no time zone %q; use an IANA name such as Europe/Berlin, America/New_York or UTC", name)
			}
			return time.Now().In(where).Format("2006-01-02T15:04:05Z07:00, Monday, ") + name, nil
		})
	if err != nil {
		return nil, err
	}
	return tool.WithScope(tool.Scope{}, tool.WithEffect(execution.Read, t)), nil
}

// loadZone returns the time zone with the given name. It rejects Local, which would be the worker's own zone.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, failure.New(failure.UserInvalidInput, CurrentTime, "Local is not a time zone; use a name such as Europe/Berlin")
	}
	return time.LoadLocation(name)
}
