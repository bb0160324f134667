// What is read only for a script that needs it: sucrase, which removes types and keeps each
// line where it is, and whose parser finds statements. build.sh adds the function web.
import { transform } from 'sucrase';
import { nextToken, match } from 'sucrase/dist/esm/parser/tokenizer/index';
import { ContextualKeyword } from 'sucrase/dist/esm/parser/tokenizer/keywords';
import { TokenType as tt } from 'sucrase/dist/esm/parser/tokenizer/types';
import { initParser, locationForIndex, state } from 'sucrase/dist/esm/parser/traverser/base';
import { parseStatement } from 'sucrase/dist/esm/parser/traverser/statement';

// statements are those at the top of a script, or none if sucrase does not understand it:
// where each begins and ends, its first token, and whether it is removed with the types.
function statements(code, typed) {
  initParser(code, false, typed, false);
  nextToken();
  const all = [];
  while (!match(tt.eof)) {
    const { start, type, contextualKeyword } = state, { length } = state.tokens;
    parseStatement(true);
    if (state.error) return [];
    all.push({ start, type, contextualKeyword, tokens: state.tokens.slice(length) });
  }
  return all;
}

// last is where the last statement begins and ends that can be an expression: functions
// behind it only have a name.
export function last(code) {
  const isFunction = ({ type, tokens }) => type === tt._function || (type === tt.name && tokens[1]?.type === tt._function);
  const found = statements(code, false).findLast((s) => s.type !== tt.semi && !isFunction(s));
  if (!found || found.type === tt._class) return undefined;
  const end = found.tokens.findLast((token) => token.type !== tt.semi).end;
  return [found.start, end];
}

export function strip(code) {
  if (/\b(?:namespace|module)\s+[\w$.]+\s*\{/.test(code)) refuseNamespaces(code);
  return transform(code, { transforms: ['typescript'], disableESTransforms: true, preserveDynamicImport: true }).code;
}

// refuseNamespaces throws if sucrase would remove a namespace that the script may use.
function refuseNamespaces(code) {
  for (const { start, contextualKeyword, tokens } of statements(code, true)) {
    if ((contextualKeyword !== ContextualKeyword._namespace && contextualKeyword !== ContextualKeyword._module) || !tokens[0].isType) continue;
    const name = code.slice(tokens[1].start, tokens[1].end);
    throw Object.assign(new Error(`namespaces are not supported: write const ${name} = { … }`), { loc: locationForIndex(start), sure: true });
  }
}
