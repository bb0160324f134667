/*---
flags: [noStrict]
---*/
with ({ x: 1 }) assert(x === 1);
