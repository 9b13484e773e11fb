// ConformanceService starts instances of the test agent, each on its own address.

import { randomBytes } from 'node:crypto';
import { agentService } from './agent-service.js';
import { unary } from './calls.js';
import type { Config } from './config.js';
import { Lifecycle } from './lifecycle.js';
import { lifecycleService } from './lifecycle-service.js';
import { log } from './log.js';
import { Memory } from './memory.js';
import { milliseconds, type MakeInstanceRequest } from './messages.js';
import { close, listen, newServer, split } from './ports.js';
import { Board } from './probes.js';
import { service } from './protos.js';
import { testAgent, testHook } from './test-agent.js';
import { checkMake } from './validation.js';

interface Made { instanceId: string; address: string; agent: string; drop(): void }

const name = 'troupe.v1.ConformanceService';

/** Serves the conformance kit until the signal aborts. */
export async function serveConformance(config: Config, stop: AbortSignal): Promise<void> {
  const made = new Map<string, Made>();
  const server = newServer();
  const board = new Board([name], []);
  board.set('serving');
  board.health.addToServer(server);
  server.addService(service(name), {
    MakeInstance: unary(async (request: MakeInstanceRequest) => {
      checkMake(request);
      const instance = await make(request, config);
      made.set(instance.instanceId, instance);
      return { instanceId: instance.instanceId, address: instance.address, agent: instance.agent };
    }),
    DropInstance: unary(({ instanceId }: { instanceId: string }) => {
      made.get(instanceId)?.drop();
      made.delete(instanceId);
      return {};
    }),
  });
  const grpc = await listen(server, config.grpcAddr);
  log.info('serving conformance', { grpc });
  await new Promise<void>((resolve) => stop.addEventListener('abort', () => resolve(), { once: true }));
  for (const instance of made.values()) instance.drop();
  await close(server, 1000);
}

async function make(request: MakeInstanceRequest, config: Config): Promise<Made> {
  const agent = testAgent(request.capacity);
  const instanceId = `${agent.name}-${randomBytes(4).toString('hex')}`;
  const memory = request.memoryAddress ? new Memory(request.memoryAddress) : undefined;
  const lifecycle = new Lifecycle({
    capacity: request.capacity,
    start: testHook(request.startup),
    stop: testHook(request.shutdown),
    timeout: request.startupTimeout ? milliseconds(request.startupTimeout) : 30_000,
    maxRetries: request.maxRetries,
    keepFailed: request.keepFailed,
    log: (message, error) => log.info(message, { instance: instanceId, error }),
  });
  const server = newServer();
  server.addService(service('troupe.v1.LifecycleService'), lifecycleService(lifecycle, { instanceId, agent: agent.name, version: agent.version }, config.drain));
  server.addService(service('troupe.v1.AgentService'), agentService(agent, lifecycle, memory));
  const { host } = split(config.grpcAddr);
  const address = await listen(server, `${host.includes(':') ? `[${host}]` : host}:0`);
  return {
    instanceId,
    address,
    agent: agent.name,
    drop: () => {
      server.forceShutdown();
      void lifecycle.shutdown(0, 'dropped').then(() => memory?.close());
    },
  };
}
