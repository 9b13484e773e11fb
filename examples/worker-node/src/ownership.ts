// Which tier owns a key of state, and is the only one to write it. The first rule that names the key decides.

export type Owner = 'OWNER_AGENT' | 'OWNER_MEMORY' | 'OWNER_ORCHESTRATOR' | 'OWNER_SHARED';

const rules: [prefixes: string[], names: string[], Owner][] = [
  [['_', 'temp:'], [], 'OWNER_AGENT'],
  [['app:', 'user:'], ['history', 'user_history', 'embeddings', 'facts', 'learned_facts', 'preferences', 'memory'], 'OWNER_MEMORY'],
  [[], ['trace_id', 'routing', 'routing_context', 'parent_context', 'context'], 'OWNER_ORCHESTRATOR'],
  [[], ['config'], 'OWNER_SHARED'],
];

export interface Ownership {
  owner: Owner;
  owns: boolean; // whether the agent may write the key
  declared: boolean; // whether a rule names it
}

/** Returns the owner of a key. A key without a rule belongs to the agent. */
export function ownership(key: string): Ownership {
  const rule = rules.find(([prefixes, names]) => names.includes(key) || prefixes.some((p) => key.startsWith(p)));
  const owner = rule?.[2] ?? 'OWNER_AGENT';
  return { owner, owns: owner === 'OWNER_AGENT', declared: rule !== undefined };
}
