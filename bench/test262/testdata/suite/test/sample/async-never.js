/*---
flags: [async]
---*/
;
