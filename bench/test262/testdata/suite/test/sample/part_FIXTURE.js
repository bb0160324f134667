/*---
description: none
---*/
assert(false);
