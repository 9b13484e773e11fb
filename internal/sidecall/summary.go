package sidecall

// SummaryInstruction tells a model to write the summary of the beginning of a conversation. The data is Messages.
const SummaryInstruction = "You make the beginning of a conversation shorter, for the assistant that continues it. Write a summary of at " +
	"most 300 words. Keep what the user wants and forbids, what was decided, facts that were found and where they are from, names, " +
	"numbers and paths to the letter, and what is still open. A message of the role summary stands for what was said before it. " +
	"Write the summary only."

// MaxSummaryText limits how much of each message the model reads when it writes a summary, in bytes.
const MaxSummaryText = 4 << 10
