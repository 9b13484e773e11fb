// The plain HTTP port (/livez /readyz /startupz) and the gRPC health service, which say the same.

import http from 'node:http';
import { HealthImplementation } from 'grpc-health-check';

export class Board {
  readonly health: HealthImplementation;
  readonly #services: string[];
  #conditions = new Map<string, string | undefined>(); // what is missing (undefined when the condition holds)
  #started = false;

  /** None of the conditions holds yet. */
  constructor(services: string[], conditions: string[]) {
    this.#services = ['', ...services];
    this.health = new HealthImplementation(Object.fromEntries(this.#services.map((s) => [s, 'NOT_SERVING'])));
    for (const c of conditions) this.#conditions.set(c, 'not yet');
  }

  /** Sets what a condition is missing (undefined when it holds). */
  set(condition: string, missing?: string): void {
    const was = this.#ready();
    this.#conditions.set(condition, missing);
    const ready = this.#ready();
    this.#started ||= ready;
    if (ready === was) return;
    for (const s of this.#services) this.health.setStatus(s, ready ? 'SERVING' : 'NOT_SERVING');
  }

  #missing(): string {
    return [...this.#conditions].filter(([, missing]) => missing !== undefined).map(([c, missing]) => `${c}: ${missing}\n`).join('');
  }

  #ready(): boolean {
    return this.#missing() === '';
  }

  /** Serves the probes: 200, or 503 with a line for each condition that does not hold. */
  serve(): http.Server {
    return http.createServer((request, response) => {
      const checks: Record<string, () => string> = {
        '/livez': () => '',
        '/readyz': () => this.#missing(),
        '/startupz': () => (this.#started ? '' : this.#missing()),
      };
      const check = checks[request.url ?? ''];
      const missing = check?.() ?? 'not found\n';
      response.writeHead(check ? (missing ? 503 : 200) : 404, { 'content-type': 'text/plain; charset=utf-8' });
      response.end(missing || 'ok\n');
    });
  }
}
