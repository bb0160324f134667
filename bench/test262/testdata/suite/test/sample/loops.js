/*---
flags: [onlyStrict]
---*/
for (;;) ;
