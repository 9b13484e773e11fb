// The messages of the contract that this worker reads and writes, as proto-loader gives them:
// names in camelCase, 64-bit numbers as strings, enums as their names.

export type Int64 = string | number;
export interface Duration { seconds: Int64; nanos: number }
export interface Timestamp { seconds: Int64; nanos: number }

export interface ToolCall { id: string; name: string; arguments: string }

export interface Message {
  role: 'ROLE_UNSPECIFIED' | 'ROLE_USER' | 'ROLE_ASSISTANT' | 'ROLE_TOOL';
  author?: string;
  sequence?: Int64;
  parts: { text?: string }[];
  toolCalls?: ToolCall[];
  toolCallId?: string; // of a ROLE_TOOL message: the call whose result it is
}

/** What one step of an agent added to what its model saw. */
export interface StepRounds { turn: number; step: number; after: Int64; messages: Message[] }

export interface FailureDetail {
  mode: string;
  op: string;
  message: string;
  facts: Record<string, string>;
}

export interface StepResult {
  step: number;
  agent: string;
  text?: string;
  sequence?: Int64;
  failure?: FailureDetail;
}

export interface ExecuteStepRequest {
  traceId: string;
  sessionId: string;
  turnId: string;
  turn: number;
  step: number;
  attempt: number;
  epoch: Int64;
  agent: string;
  history: Message[];
  baseSequence: Int64;
  prior: StepResult[];
  routes: string[];
  last: boolean;
  credential: string;
  hasRounds: boolean;
}

export interface ExecuteStepResponse {
  event?: { time: Timestamp; textDelta?: { text: string }; custom?: { name: string; data: string } };
  result?: StepResult;
  heartbeat?: Record<string, never>;
}

export interface CommitStepRequest {
  sessionId: string;
  turnId: string;
  epoch: Int64;
  baseSequence: Int64;
  messages: Message[];
  rounds: { message: Message }[];
  result: StepResult;
  outcome: 'TURN_OUTCOME_UNSPECIFIED' | 'TURN_OUTCOME_COMPLETED';
}

export interface MakeInstanceRequest {
  capacity: number;
  startup: string;
  shutdown: string;
  startupTimeout: Duration | null;
  maxRetries: number;
  keepFailed: boolean;
  memoryAddress: string;
}

/** The text of a message. */
export const textOf = (m: Message): string => m.parts.map((p) => p.text ?? '').join('\n');

/** Milliseconds of a duration. */
export const milliseconds = (d: Duration): number => Number(d.seconds) * 1000 + d.nanos / 1e6;

/** A duration of so many milliseconds. */
export function duration(ms: number): Duration {
  const seconds = Math.trunc(ms / 1000);
  return { seconds, nanos: Math.round((ms - seconds * 1000) * 1e6) };
}

/** A point in time. */
export const timestamp = (at: Date): Timestamp => duration(at.getTime());
