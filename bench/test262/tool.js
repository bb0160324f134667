// Runs a test of test262 as a script, in the manner of INTERPRETING.md. In front of this
// module stands `const harness = {…}`, the files of the folder harness by name.
const { tool, ToolError } = globalThis.toolhost;
const evaluate = eval; // in the global scope

export const plugin = { name: 'test262', description: 'Runs tests of test262.' };

let finish;
const done = new Promise((resolve) => { finish = resolve; });

globalThis.print = (line) => {
  if (line === 'Test262:AsyncTestComplete') finish('');
  else if (String(line).startsWith('Test262:AsyncTestFailure:')) finish(line.slice('Test262:AsyncTestFailure:'.length));
};
globalThis.$262 = {
  global: globalThis,
  evalScript: evaluate,
  detachArrayBuffer(buffer) { buffer.transfer(); },
};
for (const file of ['assert.js', 'sta.js']) evaluate(harness[file]);

// why is the type and the message of what was thrown.
const why = (e) => (e instanceof Object ? `${e.constructor?.name}: ${e.message}` : `${typeof e}: ${String(e)}`);

export const run = tool({
  description: 'Runs a test. It fails with what that threw.',
  input: { source: 'string', includes: { type: 'array' }, async: 'boolean' },
}, async ({ source, includes, async }) => {
  try {
    for (const file of includes) evaluate(harness[file]);
    evaluate(source);
  } catch (e) {
    throw new ToolError(why(e));
  }
  const failure = async ? await done : '';
  if (failure) throw new ToolError(failure);
});
