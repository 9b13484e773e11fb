package interact

import (
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// originFlags is part of a command that may go on from an earlier trace.
type originFlags struct {
	Resume string `help:"Trace whose turn failed: go on with it, without doing again what was done." placeholder:"TRACE" type:"trace"`
	From   string `help:"Trace to go on from in a new conversation, as it was then: see --step." placeholder:"TRACE" type:"trace"`
	Step   int32  `help:"With --from: the first step that is done anew, at most 50." placeholder:"N" type:"step"`
}

// from is what the orchestrator is asked for; nil: nothing earlier.
func (e originFlags) from() *troupev1.From {
	switch {
	case e.Resume != "":
		return &troupev1.From{TraceId: e.Resume}
	case e.From != "":
		return &troupev1.From{TraceId: e.From, Step: e.Step, Fork: true}
	default:
		return nil
	}
}

// check says what does not fit together; said is whether there is something to say.
func (e originFlags) check(said bool) error {
	switch {
	case e.Resume != "" && (e.From != "" || said):
		return errors.New("--resume goes on with what was asked: leave the text, --file and --from out")
	case (e.From != "") != (e.Step > 0):
		return errors.New("--from TRACE and --step N (from 1) go together")
	default:
		return nil
	}
}

// repeat is what has to be said to ask for the same; empty: nothing but the text.
func (e originFlags) repeat() string {
	switch {
	case e.Resume != "":
		return "ask for the same with: --resume " + console.ShellWord(e.Resume)
	case e.From != "":
		return fmt.Sprintf("ask for the same with: --from %s --step %d", console.ShellWord(e.From), e.Step)
	default:
		return ""
	}
}
