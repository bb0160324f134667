// bytecode.mjs NODE_MODULES SCRIPT OUT: the bytecode of a script whose value is that of
// the variable lazy, for the QuickJS that build.sh takes.
import { readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [modules, script, out] = process.argv.slice(2);
const { QuickJS, CompileFlags } = await import(pathToFileURL(`${modules}/quickjs-wasi/dist/index.js`));
const vm = await QuickJS.create(readFileSync(`${modules}/quickjs-wasi/quickjs.wasm`));
const code = `(() => {${readFileSync(script, 'utf8')};return lazy})()`;
writeFileSync(out, vm.compile(code, 'lazy', undefined, CompileFlags.STRIP_SOURCE | CompileFlags.STRIP_DEBUG));
