/*---
flags: [async]
---*/
Promise.reject(new TypeError("no")).then(() => $DONE(), $DONE);
