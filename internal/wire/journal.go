package wire

import (
	"github.com/troupe-dev/troupe/internal/wire/convert"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var toolEffects = convert.Enum[execution.Effect, troupev1.ToolEffect]{
	execution.Read:       troupev1.ToolEffect_TOOL_EFFECT_READ,
	execution.Idempotent: troupev1.ToolEffect_TOOL_EFFECT_IDEMPOTENT,
	execution.AtMostOnce: troupev1.ToolEffect_TOOL_EFFECT_AT_MOST_ONCE,
}

var journalPhases = convert.Enum[execution.Phase, troupev1.JournalPhase]{
	execution.Intent: troupev1.JournalPhase_JOURNAL_PHASE_INTENT,
	execution.Done:   troupev1.JournalPhase_JOURNAL_PHASE_DONE,
}

// EntryToProto converts a journal entry. The message is stored and sent.
func EntryToProto(e execution.Entry) *troupev1.JournalEntry {
	p := &troupev1.JournalEntry{
		Number: int32(e.Number),
		Phase:  journalPhases.ToProto(e.Phase),
		Digest: e.Digest,
		Effect: toolEffects.ToProto(e.Effect),
		Tool:   e.Tool,
		Usage:  UsageToProto(e.Usage),

		Incomplete: IncompleteToProto(e.Incomplete),
		Status:     toolStatuses.ToProto(event.ToolStatus(e.Status)),
		Text:       e.Text,
		SideCall:   e.SideCall,
		Mode:       e.Mode,

		Arguments: e.Arguments, StepInput: e.StepInput,
	}
	if e.Reply.Role != "" {
		p.Reply = MessageToProto(e.Reply)
	}
	return p
}

// EntryFromProto is the inverse of EntryToProto.
func EntryFromProto(e *troupev1.JournalEntry) execution.Entry {
	entry := execution.Entry{
		Number: int(e.GetNumber()),
		Phase:  journalPhases.FromProto(e.GetPhase()),
		Digest: e.GetDigest(),
		Effect: toolEffects.FromProto(e.GetEffect()),
		Tool:   e.GetTool(),
		Usage:  UsageFromProto(e.GetUsage()),

		Incomplete: incompleteFromProto(e.GetIncomplete()),
		Status:     string(toolStatuses.FromProto(e.GetStatus())),
		Text:       e.GetText(),
		SideCall:   e.GetSideCall(),
		Mode:       e.GetMode(),

		Arguments: e.GetArguments(), StepInput: e.GetStepInput(),
	}
	if e.GetReply() != nil {
		entry.Reply = MessageFromProto(e.GetReply())
	} else {
		entry.Reply = conversation.Message{}
	}
	return entry
}

// EntriesToProto converts each entry by EntryToProto.
func EntriesToProto(es []execution.Entry) []*troupev1.JournalEntry {
	return convert.All(es, EntryToProto)
}

// EntriesFromProto converts each entry by EntryFromProto.
func EntriesFromProto(es []*troupev1.JournalEntry) []execution.Entry {
	return convert.All(es, EntryFromProto)
}
