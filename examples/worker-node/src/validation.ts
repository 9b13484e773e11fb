// The rules on requests that the contract has in its buf.validate options, as far as this worker takes requests.

import { Failure } from './errors.js';
import type { Duration, ExecuteStepRequest, MakeInstanceRequest } from './messages.js';
import { milliseconds } from './messages.js';

/** A rule: the field, whether it holds, and what it asks for. */
type Rule = [field: string, holds: boolean, wanted: string];

/** Fails with USER_INVALID_INPUT and a line for each rule that does not hold. */
function check(op: string, rules: Rule[]): void {
  const broken = rules.filter(([, holds]) => !holds);
  if (broken.length === 0) return;
  throw new Failure('USER_INVALID_INPUT', op, broken.map(([field, , wanted]) => `${field}: must be ${wanted}`).join('; '), {
    fields: broken.map(([field]) => field).join(','),
  });
}

const id = /^[A-Za-z0-9_-]{1,64}$/;
const within = (n: number, low: number, high: number) => n >= low && n <= high;
const characters = (s: string) => [...s].length;

export function checkReason(op: string, reason: string): void {
  check(op, [['reason', characters(reason) <= 200, 'at most 200 characters']]);
}

export function checkDrain(drain: Duration | null): void {
  check('ShutdownRequest', [['drain', !drain || within(milliseconds(drain), 0, 600_000), '0 to 600 s']]);
}

export function checkKey(key: string): void {
  check('OwnsStateRequest', [['key', within(Buffer.byteLength(key), 1, 256), '1 to 256 bytes']]);
}

export function checkStep(r: ExecuteStepRequest): void {
  check('ExecuteStepRequest', [
    ['trace_id', /^[0-9a-f]{32}$/.test(r.traceId), '32 lower-case hex digits'],
    ['session_id', id.test(r.sessionId), '1 to 64 of A-Z a-z 0-9 _ -'],
    ['turn_id', id.test(r.turnId), '1 to 64 of A-Z a-z 0-9 _ -'],
    ['turn', r.turn >= 1, '1 or more'],
    ['step', within(r.step, 1, 50), '1 to 50'],
    ['attempt', r.attempt >= 1, '1 or more'],
    ['epoch', BigInt(r.epoch) >= 1n, '1 or more'],
    ['agent', within(characters(r.agent), 1, 63), '1 to 63 characters'],
    ['history', within(r.history.length, 1, 1000), '1 to 1000 messages'],
    ['history.role', r.history.every((m) => m.role === 'ROLE_USER' || m.role === 'ROLE_ASSISTANT'), 'a user or an assistant'],
    ['history.parts', r.history.every((m) => within(m.parts.length, 1, 64)), '1 to 64 parts'],
    ['base_sequence', BigInt(r.baseSequence) >= 1n, '1 or more'],
    ['prior', r.prior.length <= 50, 'at most 50'],
    ['routes', r.routes.length <= 64, 'at most 64'],
  ]);
}

export function checkMake(r: MakeInstanceRequest): void {
  const behavior = (name: unknown) => typeof name === 'string';
  check('MakeInstanceRequest', [
    ['capacity', within(r.capacity, 1, 1000), '1 to 1000'],
    ['startup', behavior(r.startup), 'a HookBehavior'],
    ['shutdown', behavior(r.shutdown), 'a HookBehavior'],
    ['max_retries', within(r.maxRetries, 0, 10), '0 to 10'],
    ['memory_address', characters(r.memoryAddress) <= 256, 'at most 256 characters'],
  ]);
}
