// bytecode.mjs NODE_MODULES SCRIPT OUT: the bytecode of a script, without the lines and the
// names of its functions, for the QuickJS that build.sh takes.
import { readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [modules, script, out] = process.argv.slice(2);
const { QuickJS, CompileFlags } = await import(pathToFileURL(`${modules}/quickjs-wasi/dist/index.js`));
const vm = await QuickJS.create(readFileSync(`${modules}/quickjs-wasi/quickjs.wasm`));
writeFileSync(out, vm.compile(readFileSync(script, 'utf8'), 'prelude', undefined, CompileFlags.STRIP_SOURCE | CompileFlags.STRIP_DEBUG));
