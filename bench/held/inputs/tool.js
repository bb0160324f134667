const { tool } = globalThis.toolhost;

export const plugin = { name: 'held', description: 'Works.' };

class Account {
  constructor(name) { this.name = name; this.balance = 0; this.entries = []; }
  post(amount, text) { this.balance += amount; this.entries.push({ amount, text }); return this; }
}

function ledger(rounds) {
  const accounts = new Map();
  for (let i = 0; i < rounds; i++) {
    const name = 'account ' + (i * 7919) % 97;
    if (!accounts.has(name)) accounts.set(name, new Account(name));
    accounts.get(name).post((i * 31) % 1000 - 500, `entry ${i}`);
  }
  return [...accounts.values()].sort((a, b) => b.balance - a.balance || (a.name < b.name ? -1 : 1));
}

function primes(limit) {
  const found = [];
  for (let n = 2; found.length < limit; n++) {
    let prime = true;
    for (let i = 0; i < found.length && found[i] * found[i] <= n; i++) if (n % found[i] === 0) { prime = false; break; }
    if (prime) found.push(n);
  }
  return found[found.length - 1];
}

function texts(all) {
  const words = {};
  for (const account of all) {
    const text = JSON.stringify(JSON.parse(JSON.stringify(account)).entries);
    for (const [word] of text.matchAll(/[a-z]+|\d+/g)) words[word] = (words[word] || 0) + 1;
  }
  return Object.keys(words).length;
}

export const work = tool({ description: 'Works.', input: {} }, async () => {
  const all = ledger(6000);
  return { first: all[0].name, balance: all[0].balance, prime: primes(1500), words: texts(all) };
});
