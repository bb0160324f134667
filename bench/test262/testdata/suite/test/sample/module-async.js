/*---
flags: [module, async]
---*/
await Promise.resolve(); $DONE();
