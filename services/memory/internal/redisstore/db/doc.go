// Package db holds what all parts of the Redis store share: the connection to Redis, the scripts,
// the names of keys, the decoding of replies, and the errors for replies.
//
// # Keys
//
// All keys of a session share the hash tag {tenant/session}, and so one slot of a Cluster:
//
//	m:{T/S}:meta         hash of the session: schema, user, state, epoch, turns, seq, count and bytes of
//	                     its messages (conversation.Size), summarized and summary, rev, md:<label>,
//	                     created, active, last_trace; open, open_trace and deadline of the open turn;
//	                     waiting, the steps whose calls wait, as <turn>:<step>,<step>; untrusted, the source of
//	                     untrusted text that it remembers; art_bytes, arts. After the session was
//	                     deleted it is a mark: epoch, deleted, n:<kind> with what was removed, and user
//	                     as long as something is left to remove
//	m:{T/S}:log          stream with ids <sequence>-0: field m has the number of the turn, a space, the
//	                     time, a space, and a troupe.v1.Message
//	m:{T/S}:turn:<turn>  hash of a turn: trace, fingerprint, number, outcome (empty while it is open),
//	                     epoch, attempt, seq, steps, failure; first, the last message when it began,
//	                     which is the user's if it has one; holder, the trace that began it or took it
//	                     over last; sha<n> and result<n> of each committed step (sha<n> is "inherited"
//	                     for a step that it began with, and "uncommitted" for one that FailTurn stored);
//	                     kept, whether its last step, whose calls wait and which closed it, had a
//	                     journal; jrnl<n> of each step that had a journal; untrusted; void<n>,
//	                     the attempts to commit a step that may no longer succeed. Of a turn
//	                     that continues another: continues, answers (a troupe.v1.Answers) and inherits,
//	                     the steps that continue, separated by commas. Of a turn that resumes a failed one: origin, the first
//	                     of the failed turns. Expires 7 days after the turn was closed
//	m:{T/S}:turns        sorted set of the ids of its turns by the time they began, for two retentions
//	m:{T/S}:jrnl:<turn>:<step>
//	                     hash of the journal of a step: <number>:i and <number>:d, each a
//	                     troupe.v1.JournalEntry, and bytes. Expires a day after the last entry. Of a
//	                     failed turn it expires a day after the failure, and of any step it stays as
//	                     long as the store keeps journals. Of a step whose calls wait it stays with its
//	                     turn. It is renamed to the turn that continues the step, and then does not
//	                     expire while that turn is open
//	m:{T/S}:out          hash, the outbox: changes that must still be made in other slots. <turn>/<step>
//	                     of a commit and call:<id> of a call are a troupe.v1.UpdateStateRequest of app:
//	                     or user: state; put:<id> and drop:<id> are a troupe.v1.Artifact of the user
//	m:{T/S}:state        hash of a scope: rev, bytes, keys, v:<key>. Of a scope that sessions share also
//	                     r:<key>, the revision that set it, and l:<key>, the commit that has locked it
//	m:{T/S}:reqs         sorted set of the latest 1,000 request ids of the scope
//	m:{T/S}:arts         hash of artifacts: v:<name>\x00<version> has digest, size, time and a
//	                     troupe.v1.Artifact; n:<name> has the last version that there was
//	m:{T/S}:blob:<sha>-<size>
//	                     hash of a content: stored, hash (the state of the digest so far), refs, until.
//	                     Its bytes are in m:{T/S}:blob:<sha>-<size>:<n>, 512 KiB each
//	m:{T/S}:staged       sorted set of <sha>-<size> of the contents that no artifact has, by the time
//	                     until which they are kept
//
// What sessions share is elsewhere:
//
//	m:{T/u/U}, m:{T}     the scopes user: and app:, with :state and :reqs as above; :decided, the outbox
//	                     changes that were decided on; :erased, the sessions erased with the user
//	m:{T/u/U}            the artifacts of a user, with :arts, which also has arts and art_bytes, :blob
//	                     and :staged; :erasing, a hash that exists while the user is being erased
//	m:idx:{T}, m:{T/u/U}:sessions
//	                     sorted sets, the indexes of session ids by the time the sessions were created
//	m:tenants            sorted set of all tenants
//	m:config:{agent}     hash of the configuration of an agent: version, protocol of the last writer,
//	                     removed (the last version that removed a key), v:<key>, and n:<key> with the
//	                     version that set it
//	m:store              hash about the whole store: beat is counted up while a guard watches the data,
//	                     and generation was given to the processes in identity. In a Cluster each master
//	                     has one, m:store:{<n>}
//
// Times are milliseconds of the clock of Redis.
package db
