// What an instance is at any moment, in the words of lifecycle.proto.

import { randomBytes } from 'node:crypto';

export type State = 'UNINITIALIZED' | 'INITIALIZING' | 'READY' | 'BUSY' | 'PAUSED' | 'SHUTTING_DOWN' | 'TERMINATED';

/** What the worker knows of its registration. */
export type Lease = 'UNSPECIFIED' | 'OK' | 'UNKNOWN' | 'EXPIRED';

export interface Status {
  state: State;
  version: number; // +1 per transition
  inFlight: number;
  capacity: number;
  pausing: boolean; // a Pause while BUSY waits for the steps
  since: Date;
  reason: string;
  lease: Lease;
  draining: boolean; // running steps may still end in SHUTTING_DOWN
}

export interface Transition {
  from: State;
  to: State;
  version: number;
  time: Date;
  reason: string;
  traceId: string;
}

/** Counters that only grow. Times are in milliseconds. */
export interface Metrics {
  startupTime: number;
  shutdownTime: number;
  activeTime: number;
  totalRequests: number;
  failedRequests: number;
  stateTransitions: number;
}

/** Who calls a verb. */
export interface Caller {
  signal: AbortSignal; // ends when the call was cancelled or its time is up
  deadline: number; // milliseconds since the epoch; Infinity when there is none
  traceId: string; // 32 lower-case hex digits
}

/** The worker itself as a caller: it does not give up. */
export const self = (): Caller => ({
  signal: new AbortController().signal,
  deadline: Infinity,
  traceId: randomBytes(16).toString('hex'),
});
