// LifecycleService: the lifecycle over gRPC.

import type { UntypedServiceImplementation } from '@grpc/grpc-js';
import { streaming, unary } from './calls.js';
import type { Lifecycle } from './lifecycle.js';
import { failure } from './errors.js';
import { duration, milliseconds, timestamp, type Duration, type Int64 } from './messages.js';
import { ownership } from './ownership.js';
import type { Status, Transition } from './state.js';
import { checkDrain, checkKey, checkReason } from './validation.js';

/** The identity of the instance. */
export interface Identity {
  instanceId: string;
  agent: string;
  version: string;
}

/** A verb that may ask for a state of the instance. */
interface Verb {
  ifStateVersion?: Int64 | null;
}

/** Fails unless the instance has the version that a verb asks for. No verb waits before this, so nothing comes in between. */
function checkVersion(op: string, { ifStateVersion }: Verb, status: Status): void {
  if (ifStateVersion == null || Number(ifStateVersion) === status.version) return;
  throw failure('AGENT_STATE', op, `if_state_version is ${ifStateVersion}, and the instance is ${status.state} with state_version ${status.version}; read its state and decide again`);
}

/** Returns the service for an instance. drain is the default drain time in milliseconds. */
export function lifecycleService(lifecycle: Lifecycle, who: Identity, drain: number): UntypedServiceImplementation {
  const status = () => ({ status: statusMessage(lifecycle.status(), who) });
  return {
    Startup: unary(async (request: Verb, caller) => {
      checkVersion('lifecycle.Startup', request, lifecycle.status());
      await lifecycle.startup(caller);
      return status();
    }),
    Shutdown: unary(async (request: Verb & { drain: Duration | null; reason: string }, caller) => {
      checkVersion('lifecycle.Shutdown', request, lifecycle.status());
      checkDrain(request.drain);
      checkReason('ShutdownRequest', request.reason);
      const errors = await lifecycle.shutdown(request.drain ? milliseconds(request.drain) : drain, request.reason, caller);
      return { ...status(), errors };
    }),
    Pause: unary(async (request: Verb & { reason: string }, caller) => {
      checkVersion('lifecycle.Pause', request, lifecycle.status());
      checkReason('PauseRequest', request.reason);
      await lifecycle.pause(caller, request.reason);
      return status();
    }),
    Resume: unary((request: Verb & { reason: string }, caller) => {
      checkVersion('lifecycle.Resume', request, lifecycle.status());
      checkReason('ResumeRequest', request.reason);
      lifecycle.resume(caller, request.reason);
      return status();
    }),
    GetState: unary(() => status()),
    GetMetrics: unary(() => {
      const m = lifecycle.metrics();
      return {
        startupTime: duration(m.startupTime),
        shutdownTime: duration(m.shutdownTime),
        activeTime: duration(m.activeTime),
        totalRequests: m.totalRequests,
        failedRequests: m.failedRequests,
        stateTransitions: m.stateTransitions,
      };
    }),
    OwnsState: unary((request: { key: string }) => {
      checkKey(request.key);
      return ownership(request.key);
    }),
    WatchState: streaming(async (request: { afterVersion: string }, answers, caller) => {
      for await (const item of lifecycle.watch(Number(request.afterVersion), caller.signal)) {
        await answers.send({
          transition: item.transition && transitionMessage(item.transition),
          status: statusMessage(item.status, who),
        });
      }
    }),
  };
}

const stateName = (state: string) => `INSTANCE_STATE_${state}`;

function statusMessage(s: Status, who: Identity): object {
  return {
    ...who,
    state: stateName(s.state),
    stateVersion: s.version,
    inFlight: s.inFlight,
    capacity: s.capacity,
    pausing: s.pausing,
    since: timestamp(s.since),
    reason: s.reason,
    lease: `LEASE_STATE_${s.lease}`,
    draining: s.draining,
  };
}

function transitionMessage(t: Transition): object {
  return { from: stateName(t.from), to: stateName(t.to), version: t.version, time: timestamp(t.time), reason: t.reason, traceId: t.traceId };
}
