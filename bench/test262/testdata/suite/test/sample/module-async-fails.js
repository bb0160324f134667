/*---
flags: [module, async]
---*/
await Promise.resolve(); $DONE(new TypeError("no"));
