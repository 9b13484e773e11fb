// The worker as a process: ports, registration, start, and the drain at its end.

import { randomBytes } from 'node:crypto';
import type { Agent } from './agent.js';
import { agentService } from './agent-service.js';
import type { Config } from './config.js';
import { Etcd } from './etcd.js';
import { Identity } from './identity.js';
import { Lifecycle } from './lifecycle.js';
import { lifecycleService } from './lifecycle-service.js';
import { log } from './log.js';
import { Memory } from './memory.js';
import { close, listen, listenHttp, newServer } from './ports.js';
import { Board } from './probes.js';
import { service } from './protos.js';
import { Registration } from './registration.js';

const lifecycleName = 'troupe.v1.LifecycleService';
const agentName = 'troupe.v1.AgentService';

/** Serves the agent until stop ends, or a Shutdown over gRPC has ended the instance. Fails when the start does. */
export async function serve(config: Config, agent: Agent, stop: AbortSignal): Promise<void> {
  const instanceId = config.instanceId || `${agent.name}-${randomBytes(4).toString('hex')}`;
  const board = new Board([lifecycleName, agentName], ['lifecycle', 'registry']);
  const identity = config.tlsCert || config.tlsKey || config.tlsCa ? new Identity(config) : undefined;
  const memory = new Memory(config.memory, identity?.toMemory());
  const etcd = new Etcd(config.etcd, identity?.toEtcd());
  const lifecycle = new Lifecycle({
    capacity: agent.capacity,
    leave: () => registration.close(),
    log: (message, error) => log.warn(message, { error }),
  });
  const server = newServer(identity && [identity.guard()]);
  board.health.addToServer(server);
  server.addService(service(lifecycleName), lifecycleService(lifecycle, { instanceId, agent: agent.name, version: agent.version }, config.drain));
  server.addService(service(agentName), agentService(agent, lifecycle, memory));
  const grpc = await listen(server, config.grpcAddr, identity?.server());
  const probes = board.serve();
  const http = await listenHttp(probes, config.httpAddr);
  log.info('serving', { agent: agent.name, instance: instanceId, grpc, http });

  const registration = new Registration(etcd, {
    instanceId,
    agent: agent.name,
    address: config.advertiseAddr || grpc,
    version: agent.version,
    description: agent.description,
    capacity: agent.capacity,
    started: new Date().toISOString(),
  }, (lease) => {
    lifecycle.setLease(lease);
    board.set('registry', lease === 'EXPIRED' ? 'the lease is gone' : undefined);
  });
  registration.open();
  const ended = follow(lifecycle, registration, board);
  try {
    const stopped = () => void lifecycle.shutdown(config.drain, 'the process was asked to stop');
    stop.addEventListener('abort', stopped, { once: true });
    if (stop.aborted) stopped();
    await lifecycle.startup().catch((err: unknown) => {
      if (!stop.aborted) throw err;
    });
    await ended;
  } finally {
    await registration.close().catch((error: unknown) => log.warn('the lease is left to run out', { error }));
    await close(server, 1000);
    probes.close();
    probes.closeAllConnections();
    memory.close();
    etcd.close();
    log.info('stopped', { instance: instanceId });
  }
}

/** Keeps registration and readiness in step with the lifecycle, until it is TERMINATED. */
async function follow(lifecycle: Lifecycle, registration: Registration, board: Board): Promise<void> {
  for (;;) {
    const { state } = lifecycle.status();
    registration.setState(state);
    board.set('lifecycle', state === 'READY' || state === 'BUSY' ? undefined : state.toLowerCase());
    if (state === 'TERMINATED') return;
    await lifecycle.changed();
  }
}
