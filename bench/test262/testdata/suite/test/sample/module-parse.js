/*---
flags: [module]
negative:
  phase: parse
  type: SyntaxError
---*/
export 1;
