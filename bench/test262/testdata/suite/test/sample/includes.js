/*---
includes: [constant.js]
---*/
assert(answer === 42);
