/*---
description: fails
---*/
assert(false);
