// gRPC calls as async functions: handlers that may throw, and callers with a signal and a deadline.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import * as grpc from '@grpc/grpc-js';
import { asFailure, failure, fromStatus, toStatus } from './errors.js';
import { log } from './log.js';
import type { Caller } from './state.js';

/** Calls end this much before their deadline, so that the reason reaches the caller before its own clock ends the call. */
const ahead = 20;

type ServerCall<Req> = grpc.ServerUnaryCall<Req, unknown> | grpc.ServerWritableStream<Req, unknown>;

/** The caller of a method. done releases its resources. */
function callerOf(call: ServerCall<unknown>): Caller & { done: () => void } {
  const controller = new AbortController();
  const deadline = Number(call.getDeadline());
  const cancelled = () => controller.abort(failure('USER_CANCELLED', call.getPath(), 'the call was cancelled'));
  const late = () => controller.abort(failure('AGENT_TIMEOUT', call.getPath(), 'it did not end within the deadline of the call'));
  call.on('cancelled', cancelled);
  if (call.cancelled) cancelled();
  const left = deadline - Date.now();
  const timer = Number.isFinite(left) ? setTimeout(late, Math.max(0, left - Math.min(ahead, left / 10))) : undefined;
  const parent = /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(String(call.metadata.get('traceparent')[0] ?? ''));
  return {
    signal: controller.signal,
    deadline,
    traceId: parent?.[1] ?? randomBytes(16).toString('hex'),
    done: () => clearTimeout(timer),
  };
}

function refused(call: ServerCall<unknown>, err: unknown): ReturnType<typeof toStatus> {
  const f = asFailure(err);
  const say = f.mode === 'UNSPECIFIED' ? log.warn : log.info;
  say('call rejected', { method: call.getPath(), mode: f.mode, error: f });
  return toStatus(f);
}

/** A unary method. */
export function unary<Req, Res>(handle: (request: Req, caller: Caller) => Res | Promise<Res>): grpc.handleUnaryCall<Req, Res> {
  return (call, callback) => {
    const caller = callerOf(call);
    void (async () => handle(call.request, caller))()
      .then((response) => callback(null, response), (err: unknown) => callback(refused(call, err)))
      .finally(caller.done);
  };
}

/** The response stream of a handler. */
export interface Answers<Res> {
  /** Sends the response header. */
  open(): void;
  /** Sends an item, and waits while the caller is slow. */
  send(item: Res): Promise<void>;
}

/** A server-streaming method. */
export function streaming<Req, Res>(handle: (request: Req, answers: Answers<Res>, caller: Caller) => Promise<void>): grpc.handleServerStreamingCall<Req, Res> {
  return (call) => {
    const caller = callerOf(call);
    call.on('error', () => {}); // the caller is gone; the signal says so
    const answers: Answers<Res> = {
      open: () => call.sendMetadata(new grpc.Metadata()),
      send: async (item) => {
        if (!call.write(item)) await once(call, 'drain', { signal: caller.signal });
      },
    };
    void (async () => handle(call.request, answers, caller))()
      .then(() => call.end(), (err: unknown) => void call.emit('error', refused(call, err)))
      .finally(caller.done);
  };
}

/** Calls a unary method of another service. Fails with the failure that the service sent. */
export function invoke<Req, Res>(client: grpc.Client, method: grpc.MethodDefinition<Req, Res>, request: Req, deadline: number, signal?: AbortSignal, metadata = new grpc.Metadata()): Promise<Res> {
  return new Promise((resolve, reject) => {
    const answered = (err: grpc.ServiceError | null, response?: Res) => {
      signal?.removeEventListener('abort', cancel);
      if (err) reject(fromStatus(method.path, err));
      else resolve(response!);
    };
    const call = client.makeUnaryRequest(method.path, method.requestSerialize, method.responseDeserialize, request, metadata, { deadline }, answered);
    const cancel = () => call.cancel();
    if (signal?.aborted) cancel();
    signal?.addEventListener('abort', cancel, { once: true });
  });
}
