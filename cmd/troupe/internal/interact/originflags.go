package interact

import (
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// originFlags holds the flags that select an earlier trace to continue.
type originFlags struct {
	Resume string `help:"Trace of a failed turn: continue it without repeating what was done." placeholder:"TRACE" type:"trace"`
	From   string `help:"Trace to fork: continue from it in a new session, from --step on." placeholder:"TRACE" type:"trace"`
	Step   int32  `help:"With --from: the first step to repeat, at most 50." placeholder:"N" type:"step"`
}

// origin returns the trace to continue, as the request names it (nil if the flags name none).
func (o originFlags) origin() *troupev1.From {
	switch {
	case o.Resume != "":
		return &troupev1.From{TraceId: o.Resume}
	case o.From != "":
		return &troupev1.From{TraceId: o.From, Step: o.Step, Fork: true}
	default:
		return nil
	}
}

// validate rejects flags that exclude each other. Its argument says whether the command has a text or a file.
func (o originFlags) validate(said bool) error {
	switch {
	case o.Resume != "" && (o.From != "" || said):
		return errors.New("--resume continues the original request: leave the text, --file and --from out")
	case (o.From != "") != (o.Step > 0):
		return errors.New("--from TRACE and --step N (from 1) go together")
	default:
		return nil
	}
}

// repeatHint returns a hint with the flags that send the same request again (empty when the text is enough).
func (o originFlags) repeatHint() string {
	switch {
	case o.Resume != "":
		return "ask for the same with: --resume " + console.QuoteForShell(o.Resume)
	case o.From != "":
		return fmt.Sprintf("ask for the same with: --from %s --step %d", console.QuoteForShell(o.From), o.Step)
	default:
		return ""
	}
}
