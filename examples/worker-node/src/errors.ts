// Errors of the mesh: a failure mode, a message for the caller, and the gRPC status that contains both.

import * as grpc from '@grpc/grpc-js';
import type { FailureDetail } from './messages.js';
import { message } from './protos.js';

const { status } = grpc;

/** The gRPC code of each mode that this worker returns; the whole table is in pkg/failure. */
const codes = {
  UNSPECIFIED: status.INTERNAL,
  AGENT_TIMEOUT: status.DEADLINE_EXCEEDED,
  AGENT_LOGIC: status.INTERNAL,
  AGENT_STATE: status.FAILED_PRECONDITION,
  SYSTEM_NETWORK: status.UNAVAILABLE,
  SYSTEM_TIMEOUT: status.DEADLINE_EXCEEDED,
  RESOURCE_QUOTA: status.RESOURCE_EXHAUSTED,
  USER_INVALID_INPUT: status.INVALID_ARGUMENT,
  USER_CANCELLED: status.CANCELLED,
  INSTANCE_FULL: status.RESOURCE_EXHAUSTED,
  INSTANCE_PAUSED: status.UNAVAILABLE,
  INSTANCE_DRAINING: status.UNAVAILABLE,
} as const;

/** A way in which work can fail: troupe.v1.FailureMode without its prefix. */
export type Mode = keyof typeof codes;

/** A failure that may reach a caller. Its cause is for the log and is never sent. */
export class Failure extends Error {
  constructor(
    readonly mode: string,
    readonly op: string,
    message: string,
    readonly facts: Record<string, string> = {},
    cause?: unknown,
  ) {
    super(message, { cause });
  }
}

/** Creates a failure with a mode that this worker returns. */
export function failure(mode: Mode, op: string, message: string, cause?: unknown): Failure {
  return new Failure(mode, op, message, {}, cause);
}

/** Converts any error to a Failure. An error that is not a Failure reveals no details to the caller. */
export function asFailure(err: unknown): Failure {
  return err instanceof Failure ? err : failure('UNSPECIFIED', 'call', "internal error; the worker's log has the cause", err);
}

/** A failure as part of a step's result. */
export function toDetail(f: Failure): FailureDetail {
  return { mode: `FAILURE_MODE_${f.mode}`, op: f.op, message: f.message, facts: f.facts };
}

interface Any { type_url: string; value: Buffer }
interface RpcStatus { code: number; message: string; details: Any[] }
const rpcStatus = message<RpcStatus>('google.rpc.Status');
const errorInfo = message<{ reason: string; domain: string; metadata: Record<string, string> }>('google.rpc.ErrorInfo');
const detail = message<FailureDetail>('troupe.v1.Failure');

const trailer = 'grpc-status-details-bin';
const url = (name: string) => `type.googleapis.com/${name}`;

/** The status that a server sends: a code, the sentence, ErrorInfo and troupe.v1.Failure. */
export function toStatus(err: unknown): { code: number; details: string; metadata: grpc.Metadata } {
  const f = asFailure(err);
  const code = codes[f.mode as Mode] ?? status.INTERNAL;
  const info = { reason: f.mode, domain: 'troupe.dev', metadata: f.facts };
  const metadata = new grpc.Metadata();
  metadata.set(trailer, rpcStatus.serialize({
    code,
    message: f.message,
    details: [
      { type_url: url('google.rpc.ErrorInfo'), value: errorInfo.serialize(info) },
      { type_url: url('troupe.v1.Failure'), value: detail.serialize(toDetail(f)) },
    ],
  }));
  return { code, details: f.message, metadata };
}

/** Returns the failure in a status. A status without one, for example from gRPC itself, is mapped to the nearest mode. */
export function fromStatus(op: string, err: grpc.ServiceError): Failure {
  const sent = err.metadata?.get(trailer)[0];
  if (sent instanceof Buffer) {
    const found = rpcStatus.deserialize(sent).details.find((d) => d.type_url.endsWith('/troupe.v1.Failure'));
    if (found) {
      const f = detail.deserialize(found.value);
      return new Failure(f.mode.replace(/^FAILURE_MODE_/, ''), f.op, f.message, f.facts, err);
    }
  }
  switch (err.code) {
    case status.UNAVAILABLE:
      return failure('SYSTEM_NETWORK', op, 'the service cannot be reached, or disconnected; the call may have taken effect', err);
    case status.DEADLINE_EXCEEDED:
      return failure('SYSTEM_TIMEOUT', op, 'there was no answer in time; the call may have taken effect', err);
    case status.CANCELLED:
      return failure('USER_CANCELLED', op, 'the call was cancelled', err);
    default:
      return failure('UNSPECIFIED', op, "the call failed; the worker's log has the cause", err);
  }
}
