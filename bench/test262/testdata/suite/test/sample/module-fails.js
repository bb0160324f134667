/*---
flags: [module]
---*/
assert(false);
